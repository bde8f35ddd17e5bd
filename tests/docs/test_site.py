"""The documentation is a site that needs no network, and no link within this repository is dead."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
FOLDERS = ("bench", "hack", "manifests", "tests")
PAGES = [*REPOSITORY.glob("*.md"), *(path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.md"))]
"""Pages that GitHub shows and the site does not have; Sphinx checks the site's own pages."""


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "-d", f"{site}.doctrees", source, site]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(DOCS, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_each_page_is_built_and_each_link_in_it_leads_somewhere(site):
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert len(pages) > 20
    assert [page for page in pages if not (site / page).is_file()] == []


def test_links_that_lead_nowhere_fail_the_build_and_are_named(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(DOCS / "conf.py", source)
    (source / "other.md").write_text("---\norphan: true\n---\n\n# Somewhere\n")
    (source / "index.md").write_text("# Home\n\n[fine](other.md#somewhere)\n")
    assert build(source, tmp_path / "fine").returncode == 0
    (source / "index.md").write_text(
        "# Home\n\n[](gone.md) [a heading](#gone-here) [of another page](other.md#gone-there) ![a picture](gone.png)\n"
    )
    done = build(source, tmp_path / "broken")
    assert done.returncode != 0
    assert [word for word in ("gone.md", "gone-here", "gone-there", "gone.png") if word not in done.stderr] == []


def test_the_site_loads_nothing_from_elsewhere(site):
    remote = re.compile(
        r"""<(?:script|img|source|iframe|link\b(?![^>]*rel="(?:canonical|author|license)"))\b[^>]*"""
        r"""(?:src|href|srcset)="(?:https?:)?//|url\(\s*['"]?(?:https?:)?//|@import""",
        re.IGNORECASE,
    )
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert files
    assert {path.name: found[0] for path in files if (found := remote.search(path.read_text()))} == {}


def test_each_file_and_folder_that_a_page_names_is_there():
    path = re.compile(r"(?<![\w./$-])(?:bench|crds|docs|hack|manifests|operator|requirements|runtime|tests)/[\w./-]*\w")
    named = {name for page in [*PAGES, *DOCS.rglob("*.md")] for name in path.findall(page.read_text())}
    assert len(named) > 50
    made_up = {
        "crds/released/vX.Y.Z",
        "docs/runbooks/ALERT.md",
        "runtime/tenantzone_runtime/zones/eviction_policies/NAME.py",
        "tests/ENGINE/test_engine_port.py",
        "tests/monitoring/rules/ALERT.yaml",
    }
    of_vllm = {"tests/v1/core"}
    assert {name for name in named if not (REPOSITORY / name).exists()} == made_up | of_vllm


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_page_outside_of_the_site_links_to_what_is_there(page):
    assert [link for link in local_links(page) if not leads_somewhere(page, link)] == []


def test_a_broken_link_outside_of_the_site_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('# Here it is\n\n[a](#here-it-is) [b](#gone) [c](gone.md) ![d](gone.png) <img src="away.png">\n')
    assert [link for link in local_links(page) if not leads_somewhere(page, link)] == [
        "#gone", "gone.md", "gone.png", "away.png",
    ]  # fmt: skip


def markdown() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"linkify": False}).use(anchors_plugin, max_level=6)


def local_links(page: Path) -> list[str]:
    """Links in Markdown and in HTML, in order."""
    html = markdown().render(page.read_text())
    links = re.findall(r'(?:href|src|srcset)="([^"]*)"', html)
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not anchor:
        return target.exists()
    return target.is_file() and f'id="{anchor}"' in markdown().render(target.read_text())
