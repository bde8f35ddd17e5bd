"""The results of each kind, as a table."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.figures import markdown_table
from bench.kinds.story import Answer, Story

_HEADER: Final = (
    "kind", "like", "prompt", "cached before", "by burst", "after, zones", "after, stock", "equal, alone", "equal, all",
    "drafts",
)  # fmt: skip
_ERROR: Final = re.compile(r"(?:^|[\])] )(?P<said>(?:\w+\.)*\w*(?:Error|Exception): .+)$")
"""Matches an error at the start of a line or after the logger's prefix, but not an error quoted in a warning."""
_LONGEST: Final = 240


@dataclass(frozen=True, slots=True)
class Drafts:
    """The numbers of drafted and accepted tokens on an engine."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Result:
    """The results of one kind."""

    kind: str
    like: str
    zones: Story | str
    """Story of the engine with zones, or the error from its log if it did not run."""
    stock: Story | str
    drafts: Drafts | None = None
    """Drafted and accepted tokens on the engine with zones; None without speculation."""

    @property
    def holds(self) -> bool:
        """Whether acme's cache is private and kept, and requests that run alone get the same answers as on stock.

        Other answers are not compared, because rounding differs for requests that run together, or that have a prefix
        which only one engine has cached.
        """
        if isinstance(self.zones, str) or isinstance(self.stock, str):
            return False
        kept = 0 < self.zones.before.cached_tokens <= self.zones.after.cached_tokens
        return kept and self.zones.across.cached_tokens == 0 and equal(self.zones.alone, self.stock.alone)[2]


def equal(ours: Sequence[Answer], stock: Sequence[Answer]) -> tuple[int, int, bool]:
    """Returns the number of equal answer tokens, the total number, and whether all are equal."""
    pairs = list(zip(ours, stock, strict=True))
    same = sum(a == b for one, other in pairs for a, b in zip(one.tokens, other.tokens, strict=True))
    total = sum(len(other.tokens) for _, other in pairs)
    return same, total, same == total


def table(results: Iterable[Result]) -> str:
    """Returns a table in Markdown, followed by the errors of engines that did not run."""
    shown = list(results)
    reasons = [reason for result in shown for reason in _reasons(result)]
    return "\n".join([markdown_table(_HEADER, map(_cells, shown)), *(["", *reasons] if reasons else [])])


def _cells(result: Result) -> Iterator[str]:
    zones, stock = result.zones, result.stock
    yield result.kind
    yield result.like
    ran = next((story for story in (stock, zones) if isinstance(story, Story)), None)
    yield str(ran.first.prompt_tokens) if ran else "-"
    yield _both(zones, stock, "before")
    yield _both(zones, stock, "across")
    yield _cached(zones, "after")
    yield _cached(stock, "after")
    if isinstance(zones, Story) and isinstance(stock, Story):
        for ours, theirs in ((zones.alone, stock.alone), (zones.answers, stock.answers)):
            same, total, _ = equal(ours, theirs)
            yield f"{same} of {total}"
    else:
        yield from ("-", "-")
    yield f"{result.drafts.accepted} of {result.drafts.drafted} right" if result.drafts else "-"


def _both(zones: Story | str, stock: Story | str, which: str) -> str:
    ours, theirs = _cached(zones, which), _cached(stock, which)
    return ours if ours == theirs else f"{ours}, stock {theirs}"


def _cached(story: Story | str, which: str) -> str:
    if isinstance(story, str):
        return "-"
    answer: Answer = getattr(story, which)
    return str(answer.cached_tokens)


def _reasons(result: Result) -> Iterator[str]:
    if isinstance(result.stock, str):
        yield f"- {result.kind}: stock vLLM did not run: {result.stock}"
    if isinstance(result.zones, str) and result.zones != result.stock:
        yield f"- {result.kind}: with zones: {result.zones}"


def reason_in(log: str) -> str:
    """Returns the first error in an engine's log, shortened, because later errors follow from the first."""
    for line in log.splitlines():
        if found := _ERROR.search(line):
            return found["said"].strip()[:_LONGEST]
    return (log.strip().splitlines() or ["nothing was said"])[-1][:_LONGEST]
