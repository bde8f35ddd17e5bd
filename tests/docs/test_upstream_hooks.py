"""Each module that changes vLLM names the hook that would remove it, and no other module replaces a part of vLLM."""

import ast
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / "runtime" / "tenantzone_runtime" / "engine"
PATCHES = sorted(path for path in (ENGINE / "patches").rglob("*.py") if path.name != "__init__.py")
HOOK = "Upstream change that would make this module unnecessary: "


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_patch_names_the_hook_that_would_remove_it(path: Path) -> None:
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    assert HOOK in text
    assert text.partition(HOOK)[2].endswith(".")


def replaced(path: Path) -> set[str]:
    """The attributes of vLLM's classes and modules that a module assigns."""
    tree = ast.parse(path.read_text())
    vllm = {name for node in ast.walk(tree) for name in imported_from_vllm(node)}
    targets = [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in parts(node.targets)]
    targets += [
        node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr"
    ]
    return {ast.unparse(target) for target in targets if root(target) in vllm}


def imported_from_vllm(node: ast.AST) -> set[str]:
    """The names that an import of vLLM's code gives to a module."""
    match node:
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "vllm":
            return {alias.asname or alias.name for alias in node.names}
        case ast.Import():
            names = {alias.asname or alias.name: alias.name for alias in node.names}
            return {name.split(".")[0] for name, module in names.items() if module.split(".")[0] == "vllm"}
    return set()


def parts(targets: list[ast.expr]) -> list[ast.expr]:
    """The targets of an assignment, with those in tuples."""
    return [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]


def root(target: ast.expr) -> str:
    """The name with which an attribute's expression begins; empty if the expression does not begin with a name."""
    inner = target
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return inner.id if isinstance(inner, ast.Name) else ""


def test_no_module_outside_the_folder_replaces_a_part_of_vllm() -> None:
    found = {name for path in PATCHES for name in replaced(path)}
    assert {"AsyncLLM.generate", "stock_connector.MediaConnector.load_from_url_async"} <= found, "patches are found"
    others = sorted(set(ENGINE.parent.rglob("*.py")) - set(PATCHES))
    assert {str(path): names for path in others if (names := replaced(path))} == {}
