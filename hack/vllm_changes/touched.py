"""The parts of vLLM that this repository touches, read from its own source, so that none can be forgotten."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_ADAPTER = "runtime/tenantzone_runtime/engine"
_IMPORTING = ("runtime", "hack", "tests", "bench")


@dataclass(frozen=True, slots=True)
class Touched:
    """Names of vLLM's that are used somewhere in this repository."""

    imported: frozenset[tuple[str, str]]
    """Imported modules, and the names imported from each."""
    modules: frozenset[str]
    """The modules that the adapter imports from: their code runs with it."""
    names: frozenset[str]
    """Attributes that the adapter reads, writes, calls or replaces, of any class."""


def touched(repository: Path = _REPOSITORY) -> Touched:
    """Returns the parts of vLLM that this repository touches."""
    importing = [path for folder in _IMPORTING for path in (repository / folder).rglob("*.py")]
    adapter = [*_trees((repository / _ADAPTER).rglob("*.py"))]
    return Touched(
        imported=frozenset(each for tree in _trees(importing) for each in _imports(tree)),
        modules=frozenset(module for tree in adapter for module, _ in _imports(tree)),
        names=frozenset(name for tree in adapter for name in _names(tree)),
    )


def _trees(paths: Iterable[Path]) -> Iterator[ast.Module]:
    for path in paths:
        yield ast.parse(path.read_text())


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
            for alias in node.names:
                yield node.module or "", alias.name


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef):
            yield node.name
