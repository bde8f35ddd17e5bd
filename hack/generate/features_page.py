"""Writes docs/features.md, the support of vLLM's features with zones, from tests/features.toml and the tests' markers.

A test declares the feature that it shows: ``@pytest.mark.shows("chunked prefill")``. The rows of refused features come
from the code's declarations. After a change of either, run: make features-page
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from tenantzone_runtime.unsupported import UNSUPPORTED, Unsupported

REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = REPOSITORY / "docs" / "features.md"
TESTS: Final = REPOSITORY / "tests"
FEATURES: Final = TESTS / "features.toml"

_PAGE: Final = Template("""\
# Features, with zones

<!-- Written by `make features-page` from tests/features.toml and the tests. Do not edit by hand. -->

The first table says how each feature of stock vLLM works with zones. Each row names the tests that show it, or says why
there is none.

Tests marked "on an engine" run over HTTP, mostly on a CPU engine with two tenants, 63 blocks, steps of 64 tokens,
`--scheduling-policy priority`, two LoRA adapters and KV events. Each answer is compared with the answer that the same
engine gave before any zone was declared. All other tests run in process, with vLLM's real scheduler and made-up tokens.
[Kinds of models](kinds.md) shows what `bench.kinds` printed.

$works

## What is refused

[What zones do not support](unsupported.md) shows when each feature is refused, and lists refused routes.

$refused
""")

_MARK: Final = "shows"
_ENGINES: Final = {"engine", "stock"}
"""Fixtures that are a real engine, reached over HTTP."""

BY_SETTING: Final = "refused by flag or variable"
BY_CONFIGURATION: Final = "refused by configuration"
BY_REQUEST: Final = "refused by request"
"""The feature that tests name for everything that is refused in this way."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A row: something that users of stock vLLM have."""

    name: str
    zones: str
    """The support of the feature with zones."""
    bench: str = ""
    """A command that shows it, too."""
    unproven: str = ""
    """Why no test shows it."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A test that shows a feature."""

    path: str
    """The path of its file, below ``tests``."""
    test: str
    on_an_engine: bool
    """Whether the test uses a real engine over HTTP."""


def features() -> list[Feature]:
    """The rows, in their order."""
    return [Feature(**fields) for fields in tomllib.loads(FEATURES.read_text())["feature"]]


def proofs(tests: Path = TESTS) -> Mapping[str, list[Proof]]:
    """Returns the tests that show features, by feature.

    Raises:
        ValueError: a mark whose names are not written out in it.
    """
    found: dict[str, list[Proof]] = defaultdict(list)
    for file in sorted(tests.rglob("test_*.py")):
        module = ast.parse(file.read_text())
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        all_on_an_engine = any(_is_autouse(each) and _arguments(each) & _ENGINES for each in functions)
        for function in functions:
            for name in _shown_by(function, file):
                on_an_engine = all_on_an_engine or bool(_arguments(function) & _ENGINES)
                found[name].append(Proof(str(file.relative_to(tests)), function.name, on_an_engine))
    return found


def _shown_by(function: ast.FunctionDef | ast.AsyncFunctionDef, file: Path) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{_MARK}":
            for argument in decorator.args:
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    raise ValueError(f"{file}: {function.name} must write out what it shows")
                yield argument.value


def _is_autouse(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("autouse=True" in ast.unparse(decorator) for decorator in function.decorator_list)


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {argument.arg for argument in function.args.args}


def page() -> str:
    """The page's content."""
    shown = proofs()
    works = [("feature", "with zones", "shown by"), ("---", "---", "---")]
    works += [(each.name, each.zones, _evidence(each, shown.get(each.name, []))) for each in features()]
    refused = [("feature", "refused, because", "instead", "shown by"), ("---", "---", "---", "---")]
    refused += [
        (each.feature, each.reason, each.instead, "; ".join(_cited(_refusals(each, shown)))) for each in UNSUPPORTED
    ]
    return _PAGE.substitute(works=_table(works), refused=_table(refused))


def _table(rows: Iterable[Iterable[str]]) -> str:
    return "\n".join(f"| {' | '.join(cell.strip() for cell in row)} |" for row in rows)


def _evidence(feature: Feature, shown: list[Proof]) -> str:
    bench = [f"`{feature.bench}`"] if feature.bench else []
    return "; ".join([*_cited(shown), *bench]) or f"no test. {feature.unproven}"


def _refusals(unsupported: Unsupported, shown: Mapping[str, list[Proof]]) -> list[Proof]:
    """The tests that try each refusal of a kind, of all the kinds that this one has."""
    by_setting = shown[BY_SETTING] if unsupported.flags or unsupported.variables else []
    by_configuration = shown[BY_CONFIGURATION] if unsupported.is_configured is not None else []
    return [*by_setting, *by_configuration] or shown[BY_REQUEST]


def _cited(proofs: Iterable[Proof]) -> list[str]:
    """Returns the files, with the test if there is only one, and what it is tried on."""
    by_file: dict[str, list[Proof]] = defaultdict(list)
    for proof in proofs:
        by_file[proof.path].append(proof)
    return [
        f"`tests/{path}{f'::{of_file[0].test}' if len(of_file) == 1 else ''}`"
        f"{f', {len(of_file)} tests' if len(of_file) > 1 else ''}"
        f"{', on an engine' if any(each.on_an_engine for each in of_file) else ''}"
        for path, of_file in by_file.items()
    ]


def contradictions(shown: Mapping[str, object], rows: list[Feature]) -> list[str]:
    """Returns the contradictions between tests and rows; empty if there are none.

    Args:
        shown: features that tests show, from `proofs`.
        rows: of the table.
    """
    names = [row.name for row in rows]
    known = {*names, BY_SETTING, BY_CONFIGURATION, BY_REQUEST}
    wrong = [f"tests show {name!r}, which is no row" for name in shown if name not in known]
    wrong += [
        f"{row.name!r} has no test, and no reason why" for row in rows if row.name not in shown and not row.unproven
    ]
    wrong += [f"{row.name!r} has a test, and a reason why not" for row in rows if row.name in shown and row.unproven]
    wrong += [f"{name!r} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    return wrong


if __name__ == "__main__":
    PAGE.write_text(page())
