"""No function of the frontend calls itself, directly or through others: clients would choose how deep."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tenantzone_runtime import frontend

PACKAGE = Path(frontend.__file__).parent
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def functions_in(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """All functions and methods of a module, by their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            yield f"{prefix}.{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions_in(node, f"{prefix}.{node.name}")


def names_in(tree: ast.AST, module: str) -> dict[str, str]:
    """The meaning of a module's names: its own functions, and those imported from other modules here."""
    names = {name.rpartition(".")[2]: name for name, _ in functions_in(tree, module) if name.count(".") == 1}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tenantzone_runtime.frontend."):
            source = (node.module or "").rpartition(".")[2]
            names |= {alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names}
    return names


def mentioned(function: ast.AST, class_: str, names: dict[str, str]) -> set[str]:
    """The functions that a function calls or passes on, and the methods of its own object that it calls."""
    found = {names[node.id] for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in names}
    for node in ast.walk(function):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
            found.add(f"{class_}.{called.attr}")
    return found


def calls() -> dict[str, set[str]]:
    graph = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        names = names_in(tree, file.stem)
        for name, function in functions_in(tree, file.stem):
            graph[name] = mentioned(function, name.rpartition(".")[0], names)
    return graph


def test_no_function_calls_itself():
    graph = calls()
    assert "values.levels" in graph["values.nests_deeper"], "the functions of other modules are seen"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"walk client data in a loop, as frontend/body/values.py does: {error.args[1]}") from None
