"""Python environments for tools that must not share the tests' own, each filled from a lock and kept in the cache."""

import hashlib
import sys
from pathlib import Path

from hack.controlplane.cache import cache_folder, exclusive
from hack.progress import say, watch, written


def environment(name: str, lock: Path) -> Path:
    """The folder of an environment with what a lock file pins, made once.

    Args:
        name: of the folder and of the lines of progress.
        lock: requirements with hashes.

    Raises:
        CommandFailed: the installation failed.
    """
    digest = hashlib.sha256(f"{sys.version} ".encode() + lock.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"{name}-{digest}"
    done = folder / "done"
    with exclusive(cache_folder() / f"{name}.lock", name=name):
        if not done.exists():
            say(name, f"installing into {folder}")
            _install(name, folder, lock)
            done.touch()
    return folder


def _install(name: str, folder: Path, lock: Path) -> None:
    uv, python = Path(sys.executable).with_name("uv"), folder / "bin" / "python"
    made: list[str | Path] = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder]
    watch(name, made, status=written)
    filled: list[str | Path] = [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, lock]
    watch(name, filled, status=written)
