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
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    vllm = {
        alias.asname or alias.name for node in nodes if (node.module or "").startswith("vllm") for alias in node.names
    }
    targets = [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    found = {
        ast.unparse(target)
        for target in targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in vllm
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr"]
    return found | {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.args[0]) in vllm}


def test_no_module_outside_the_folder_replaces_a_part_of_vllm() -> None:
    assert {name for path in PATCHES for name in replaced(path)}, "the patches are found"
    others = set(ENGINE.rglob("*.py")) - set(PATCHES)
    assert {path.name: replaced(path) for path in others if replaced(path)} == {}
