"""Compares the touched parts of two vLLMs."""

import ast
import difflib
from collections.abc import Iterator

from hack.vllm_changes.package import Package
from hack.vllm_changes.touched import Touched


def changes(old: Package, new: Package, of: Touched) -> Iterator[str]:
    """Yields the differences between two vLLMs in the touched parts, line by line: breaking ones first, code last."""
    yield f"vLLM {old.version} and {new.version}, in what zones touch of them"
    yield from _section("imports that are gone", _imports(old, new, of))
    yield from _section("attributes that are gone", _attributes(old, new, of))
    yield from _section("fields that are others", _fields(old, new, of))
    yield from _section("routes", _difference(_routes(old), _routes(new)))
    yield from _section("flags", _difference(set(old.flags()), set(new.flags())))
    yield from _section("modules of the core", _difference(set(old.core), set(new.core)))
    yield from _section("code that is called, replaced, or calls what is replaced", _code(old, new, of))


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    found = list(lines)
    yield f"\n{title}: {'' if found else 'none'}"
    yield from (f"  {line}" for line in found)


def _modules(package: Package, of: Touched) -> set[str]:
    return {module for module, _ in of.imported if package.path(module)} | package.core


def _imports(old: Package, new: Package, of: Touched) -> Iterator[str]:
    for module, name in sorted(of.imported):
        if old.has(module, name) and not new.has(module, name):
            yield f"{module}.{name}, now in: {', '.join(new.where(name)) or 'no module'}"


def _attributes(old: Package, new: Package, of: Touched) -> Iterator[str]:
    before, after = (
        {name for module in _modules(each, of) for name in each.module(module).names & of.names} for each in (old, new)
    )
    yield from sorted(before - after)


def _fields(old: Package, new: Package, of: Touched) -> Iterator[str]:
    """Yields differences of all fields of imported classes, and of touched fields elsewhere."""
    imported = {name for _, name in of.imported}
    for module in sorted(_modules(old, of) | _modules(new, of)):
        before, after = old.module(module).fields, new.module(module).fields
        for name in sorted(before.keys() | after.keys()):
            owner, _, attribute = name.rpartition(".")
            is_touched = attribute in of.names or (owner in imported and module not in old.core)
            if is_touched and before.get(name) != after.get(name):
                yield f"{module}.{name}: {before.get(name, 'none')} → {after.get(name, 'none')}"


def _routes(package: Package) -> set[str]:
    return {f"{method} {path}" for method, path in package.routes()}


def _difference(before: set[str], after: set[str]) -> Iterator[str]:
    yield from (f"- {each}" for each in sorted(before - after))
    yield from (f"+ {each}" for each in sorted(after - before))


def _code(old: Package, new: Package, of: Touched) -> Iterator[str]:
    for module in sorted(old.core | new.core | of.modules):
        before, after = old.module(module).functions, new.module(module).functions
        for name in sorted(before.keys() | after.keys()):
            if name.rpartition(".")[2] not in of.names:
                continue
            one, other = (_lines(functions.get(name)) for functions in (before, after))
            if one != other:
                yield f"{module}.{name}"
                yield from list(difflib.unified_diff(one, other, lineterm="", n=2))[2:]


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> list[str]:
    """A function's code, without what says nothing to a machine."""
    if function is None:
        return []
    body = function.body
    if ast.get_docstring(function) is not None:
        function.body = body[1:] or [ast.Pass()]
    return ast.unparse(function).splitlines()
