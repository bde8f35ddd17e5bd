"""Makes the virtual environment ``.venv`` with everything that the demo, the tests and the linters need.

Needs only Python with pip and venv. Does nothing if the environment is up to date. ``--check`` only checks that this
machine is suitable. ``--older`` makes ``.venv-older``, with the oldest supported vLLM. ``--newer`` makes
``.venv-newer``, which adds the newest vLLM to the packages of ``.venv``: it has no build for CPUs, so only its Python
files can be used.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - report an older Python here, before it fails on our syntax
    sys.exit(f"TenantZone needs Python 3.11 or newer; this is {sys.version.split()[0]}. Try: make PYTHON=python3.11")

import fcntl
import hashlib
import importlib.util
import os
import shutil
import time
from pathlib import Path

from hack.progress import CommandFailed, say, watch, written

ROOT = Path(__file__).resolve().parent.parent
OTHER = next((name for name in ("older", "newer") if f"--{name}" in sys.argv[1:]), None)
NEWER = OTHER == "newer"
ENVIRONMENT = ROOT / (f".venv-{OTHER}" if OTHER else ".venv")
STAMP = ENVIRONMENT / "bootstrap.sha256"
UV = ENVIRONMENT / "bin" / "uv"
PYTHON = ENVIRONMENT / "bin" / "python"
UV_REQUIREMENTS = ROOT / "hack" / "bootstrap.txt"
REQUIREMENTS = ROOT / "requirements" / (f"{OTHER}.txt" if OTHER else "dev.txt")
PACKAGES = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
NAME = "python"
QUIET_PIP = ("--quiet", "--disable-pip-version-check", "--root-user-action=ignore")
COMPILED = "--compile-bytecode"
"""Compiled once here instead of in each engine process: the tests start more than a hundred of them, many users do not
let Python write bytecode later, and pods can't."""

GIGABYTES = 1 if NEWER else 5
NEEDED_BYTES = 2.4e9 * GIGABYTES
"""Size of the packages; torch includes CUDA libraries."""
LINKED_BYTES = 2e9
"""Size of the files that are not in uv's cache, if uv links all packages from there."""


def main() -> None:
    """Make the virtual environment, unless it is up to date; with ``--check``, only check the machine."""
    _check_machine()
    if "--check" in sys.argv[1:] or _is_current():
        return
    # The file itself is the lock: two runs at once take turns, and the second finds nothing to do.
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_current():
            return
        _check_disk()
        began = time.monotonic()
        _install()
        say(NAME, f"{ENVIRONMENT} is ready after {time.monotonic() - began:.0f} s")


def _check_machine() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(f"{sys.executable} can't make virtual environments. On Debian and Ubuntu: apt install python3-venv")


def _check_disk() -> None:
    if ENVIRONMENT.exists():
        return
    free, needed = shutil.disk_usage(ROOT).free, LINKED_BYTES if _links_from_cache() else NEEDED_BYTES
    if free < needed:
        sys.exit(f"{ROOT} has {free / 1e9:.0f} GB of free disk; the Python packages need {needed / 1e9:.0f} GB")


def _links_from_cache() -> bool:
    """Returns whether uv will link the largest package, torch, from its cache, which is on the same disk then."""
    if os.environ.get("UV_NO_CACHE") or os.environ.get("UV_LINK_MODE") == "copy":
        return False
    caches = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", ""), ".cache")
    cache = Path(os.environ.get("UV_CACHE_DIR") or Path(caches, "uv"))
    return any(package.stat().st_dev == ROOT.stat().st_dev for package in cache.glob("archive-v*/*/torch"))


def _inputs() -> str:
    """A digest of everything that the environment is made from."""
    digest = hashlib.sha256(f"{sys.version} {ROOT}".encode())
    for path in (Path(__file__), UV_REQUIREMENTS, REQUIREMENTS, ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _is_current() -> bool:
    return STAMP.exists() and STAMP.read_text() == _inputs() and PYTHON.exists()


def _install() -> None:
    STAMP.unlink(missing_ok=True)
    say(NAME, f"installing into {ENVIRONMENT}; the first time about {GIGABYTES} GB are downloaded, which takes minutes")
    if not _is_usable():
        _run(sys.executable, "-m", "venv", "--clear", ENVIRONMENT)
    _run(PYTHON, "-m", "pip", "install", *QUIET_PIP, "--require-hashes", "-r", UV_REQUIREMENTS)
    if NEWER:
        _run(UV, "pip", "install", "--python", PYTHON, COMPILED, "--no-deps", "--require-hashes", "-r", REQUIREMENTS)
        below = ROOT / ".venv" / PACKAGES
        (ENVIRONMENT / PACKAGES / "below.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
    else:
        _run(UV, "pip", "sync", "--python", PYTHON, COMPILED, "--require-hashes", REQUIREMENTS)
        _run(UV, "pip", "install", "--python", PYTHON, "--no-deps", "--no-build-isolation", "-e", ROOT)
    STAMP.write_text(_inputs())


def _is_usable() -> bool:
    """Whether there is an environment of this Python that has uv: that one is only brought up to date."""
    return (ENVIRONMENT / PACKAGES).exists() and PYTHON.exists() and UV.exists()


def _run(*command: str | Path) -> None:
    # uv lists each package that it installs; the counts, which it prints too, are enough.
    watch(NAME, command, status=written, worth_saying=lambda line: not line.startswith((" + ", " - ", " ~ ")))


if __name__ == "__main__":
    try:
        main()
    except CommandFailed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; run it again, what was downloaded is kept")
