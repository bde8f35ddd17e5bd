"""The patch that docs/upstream.md proposes is short, and applies to the installed vLLM."""

import pytest

from hack.conformance.source import installed_vllm
from hack.upstream import patched
from tests.docs.test_site import DOCS

PAGE = (DOCS / "upstream.md").read_text()
LINES = patched.PATCH.read_text().splitlines()
MOST_LINES = 300
VERSION = "0.32.0"

pytestmark = pytest.mark.skipif(installed_vllm() != VERSION, reason=f"the patch is for vLLM {VERSION}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the patched copy."""
    folder = tmp_path_factory.mktemp("vllm")
    patched.copy(folder)
    return folder


def test_the_patch_is_short_and_the_page_says_its_length():
    assert len(LINES) <= MOST_LINES
    assert f"({len(LINES)} lines with one line of context" in " ".join(PAGE.split())


def test_the_patch_changes_only_its_files(folder):
    stock = patched.installed()
    changed = patched.changed_files(patched.PATCH.read_text())
    assert len(changed) > 5
    for path in changed:
        compile((folder / path).read_text(), path, "exec")
        assert (folder / path).read_bytes() != (stock.parent / path).read_bytes()
    links = [path for path in (folder / "vllm").rglob("*.py") if not path.is_symlink()]
    added = {line.removeprefix("+++ b/") for line in LINES if line.startswith("+++ b/")}
    assert {str(path.relative_to(folder)) for path in links} == added
