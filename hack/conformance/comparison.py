"""Compares two runs of the same tests."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from packaging.version import Version


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test went.

    Args:
        outcome: a test that fails in its setup, itself or in its teardown has failed.
        reason: what it failed with, or why it was skipped.
        details: the end of the traceback.
    """

    outcome: Literal["passed", "failed", "skipped"]
    reason: str = ""
    details: str = ""


Outcomes = Mapping[str, Outcome]
"""Outcomes by test id."""

Reasons = Mapping[str, str]
"""Why a test that passes with stock does not with ours, by test id."""

_MISSING = Outcome("failed", "it was not run")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome by category: each test's id is in exactly one, in the order of the stock run."""

    passed: list[str]
    """With both."""
    stock_only: dict[str, Outcome]
    """Tests that passed with stock only, and their outcomes with ours. There should be none."""
    explained: dict[str, str]
    """Such tests with a known reason, and the reason."""
    outdated: list[str]
    """There is a reason for a difference, and no difference. None may be."""
    ours_only: list[str]
    """Passed with ours only."""
    neither: dict[str, Outcome]
    """Failed or skipped with both, and how they went with stock."""

    @property
    def conforms(self) -> bool:
        """Whether all that passes with stock passes with ours, unless explained, and anything passed at all."""
        return bool(self.passed) and not self.stock_only and not self.outdated


def read_outcomes(path: Path) -> Outcomes:
    """Read what ``conformance.recording`` wrote."""
    return {test: Outcome(**fields) for test, fields in json.loads(path.read_text()).items()}


def read_reasons(path: Path, version: str) -> Reasons:
    """The table of differences that are known, with a vLLM of this version."""
    with path.open("rb") as file:
        differences = tomllib.load(file)["difference"]
    return {
        test: difference["reason"].strip()
        for difference in differences
        if Version(difference.get("since", "0")) <= Version(version)
        for test in difference["tests"]
    }


def compare(stock: Outcomes, ours: Outcomes, reasons: Reasons = MappingProxyType({})) -> Comparison:
    """A test that one side did not run has failed there.

    Args:
        stock: how tests went with vLLM's classes.
        ours: and with ours.
        reasons: of differences that are known.
    """
    result = Comparison([], {}, {}, [], [], {})
    for test in {**stock, **ours}:
        with_stock, with_ours = stock.get(test, _MISSING), ours.get(test, _MISSING)
        match with_stock.outcome == "passed", with_ours.outcome == "passed":
            case True, True:
                result.passed.append(test)
            case True, False if test in reasons:
                result.explained[test] = reasons[test]
            case True, False:
                result.stock_only[test] = with_ours
            case False, True:
                result.ours_only.append(test)
            case False, False:
                result.neither[test] = with_stock
    result.outdated.extend(test for test in reasons if test not in result.explained)
    return result


def describe(comparison: Comparison) -> Iterator[str]:
    """Lines for people: counts, then why tests passed with neither, then each difference by name."""
    outcomes = Counter(outcome.outcome for outcome in comparison.neither.values())
    yield f"{len(comparison.passed):>5} passed with both"
    yield f"{outcomes['failed']:>5} failed with stock classes, too"
    yield f"{outcomes['skipped']:>5} skipped with stock classes, too"
    yield f"{len(comparison.ours_only):>5} passed with ours only"
    if comparison.explained:
        yield f"{len(comparison.explained):>5} passed with stock only, for a reason that is known"
    yield f"{len(comparison.stock_only):>5} passed with stock only"
    if comparison.neither:
        yield "\nWhat passed with neither, and why:"
        reasons = Counter(_in_short(outcome.reason) for outcome in comparison.neither.values())
        yield from (f"{count:>5} {reason}" for reason, count in reasons.most_common())
    if comparison.ours_only:
        yield "\nPassed with ours only:"
        yield from (f"  {test}" for test in comparison.ours_only)
    for reason in dict.fromkeys(comparison.explained.values()):
        yield f"\nPassed with stock only. {reason}"
        yield from (f"  {test}" for test, known in comparison.explained.items() if known == reason)
    if comparison.outdated:
        yield "\nTold to pass with stock only, and that is not so:"
        yield from (f"  {test}" for test in comparison.outdated)
    if comparison.stock_only:
        yield "\nPassed with stock only:"
        for test, outcome in comparison.stock_only.items():
            yield f"\n  {test}: {outcome.outcome}"
            yield outcome.details or outcome.reason


def _in_short(reason: str) -> str:
    """The first lines say what kind of failure it is; ids and addresses come behind them."""
    return " ".join(reason.split())[:200]
