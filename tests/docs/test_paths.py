"""The page's paths through the code lead through existing files, and leave out none of the frontend's."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime" / "tenantzone_runtime"
PAGE = (ROOT / "docs" / "paths.md").read_text()
NAMED = re.findall(r"`([\w/]+\.(?:py|yaml))`", PAGE)
ROOTS = (ROOT, ROOT / "runtime", RUNTIME)
FOLDERS = (*ROOTS, *(root / name for root in ROOTS for name in re.findall(r"`([\w/]+/)`", PAGE)))
"""Folders in which the page names files: those that it mentions itself, and the folders in them."""


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_each_file_is_there(name: str):
    assert any((folder / name).is_file() or (folder != ROOT and [*folder.glob(f"*/{name}")]) for folder in FOLDERS)


def test_each_module_of_the_frontend_is_passed():
    folders = [path for path in (RUNTIME / "frontend").iterdir() if path.is_dir() and path.name != "identities"]
    files = [*(RUNTIME / "frontend").glob("*.py"), *(path for folder in folders for path in folder.glob("*.py"))]
    modules = {str(path.relative_to(RUNTIME)) for path in files if path.name != "__init__.py"}
    assert len(modules) > 30
    assert modules - set(NAMED) == set()


def test_so_is_each_that_asks_for_grammars():
    modules = {path.name for path in (RUNTIME / "engine").rglob("*grammar*.py")}
    assert modules
    assert {name for name in modules if f"`{name}`" not in PAGE and f"/{name}`" not in PAGE} == set()
