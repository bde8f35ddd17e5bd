"""``bench/README.md`` and ``hack/README.md`` list all that can be run there, and what uses it."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(?P<name>(?:bench|hack)[.\w]*)` \| [^|]+ \| (?P<users>[^|]+) \|$", re.MULTILINE)
MAKEFILE = (REPOSITORY / "Makefile").read_text()


def entries(root: str) -> dict[str, str]:
    """What uses each entry of a folder's README, as its row says."""
    return {row["name"]: row["users"] for row in ROW.finditer((REPOSITORY / root / "README.md").read_text())}


ENTRIES = {name: users for root in ("bench", "hack") for name, users in entries(root).items()}


def runnable(root: str) -> set[str]:
    """The names for ``python -m`` of all modules of a folder that do something when they are run."""
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__main__")
        for path in (REPOSITORY / root).rglob("*.py")
        if path.stem == "__main__" or "\nif __name__ ==" in path.read_text()
    }


def of(name: str) -> Path:
    """The module or the folder of this name."""
    path = REPOSITORY / name.replace(".", "/")
    return path if path.is_dir() else path.with_suffix(".py")


def text_of(path: Path) -> str:
    """The text of a file, or of all modules below a folder."""
    return "".join(each.read_text() for each in path.rglob("*.py")) if path.is_dir() else path.read_text()


def names(text: str, name: str) -> bool:
    """Whether a text has the module's name, its path, or an import from it or below it."""
    package, _, module = name.rpartition(".")
    forms = (
        rf"\b{re.escape(name)}\b",
        rf"\b{of(name).relative_to(REPOSITORY)}",
        rf"from {package} import .*\b{module}\b",
    )
    return any(re.search(form, text) for form in forms) or f'"{module}.py"' in text


def commands(text: str) -> set[str]:
    """The names of benches and tools in a text, each as a whole."""
    return set(re.findall(r"\b(?:bench|hack)(?:\.\w+)*", text))


def recipe(target: str) -> str:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, f"the Makefile has no target {target}"
    return found[1].replace("$(DEMO)", "hack.demo")


@pytest.mark.parametrize("root", ["bench", "hack"])
def test_all_that_can_be_run_is_listed(root: str) -> None:
    assert runnable(root) - set(entries(root)) == set()


def test_each_tool_that_is_only_imported_is_listed_too() -> None:
    tools = {f"hack.{path.stem}" for path in (REPOSITORY / "hack").iterdir() if (path / "__init__.py").exists()}
    tools |= {f"hack.{path.stem}" for path in (REPOSITORY / "hack").glob("[!_]*.py")}
    assert {tool for tool in tools if not any(name == tool or name.startswith(f"{tool}.") for name in ENTRIES)} == set()


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_exists_and_is_used_as_its_row_says(name: str) -> None:
    assert of(name).exists()
    users = ENTRIES[name]
    targets = re.findall(r"`make ([\w-]+)`", users)
    pages = re.findall(r"\]\(\.\./([^)#]+)", users)
    others = re.findall(r"`((?:tests/|Dockerfile)[^`]*)`", users)
    modules = re.findall(r"`((?:bench|hack)\.[^`]*)`", users)
    assert targets or pages or others or modules
    wrong = [target for target in targets if name not in commands(recipe(target))]
    wrong += [page for page in pages if name not in commands((REPOSITORY / page).read_text())]
    wrong += [path for path in others if not names(text_of(REPOSITORY / path), name)]
    wrong += [module for module in modules if not names(text_of(of(module)), name)]
    assert wrong == []
