"""Python packages that must not be in the tests' own environment, each installed from a lock and kept in the cache."""

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.cache import cache_folder, exclusive
from hack.progress import say, watch, written

_LOCKS = Path(__file__).parents[1] / "requirements"
PICTURES = _LOCKS / "pictures.txt"
MOONCAKE = _LOCKS / "mooncake.txt"
LOGIC = _LOCKS / "logic.txt"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of this machine."""

    path: Path
    version: str
    """As ``sys.version`` has it."""


THIS_INTERPRETER = Interpreter(Path(sys.executable), sys.version)


def environment(name: str, lock: Path, interpreter: Interpreter = THIS_INTERPRETER) -> Path:
    """The folder of an environment with what a lock file pins, made once.

    Args:
        name: of the folder and of the lines of progress.
        lock: requirements with hashes.
        interpreter: the Python of the environment.

    Raises:
        CommandFailed: the installation failed.
    """
    return _made_once(name, lock, _install, interpreter)


def with_torchvision(*path: str | Path) -> str:
    """The ``PYTHONPATH`` of processes with vLLM's models that read pictures: these import torchvision.

    Args:
        path: what comes first in it.

    Raises:
        CommandFailed: torchvision can't be installed.
    """
    folder = _made_once("pictures", PICTURES, _lay)
    return os.pathsep.join(str(each) for each in (*path, os.environ.get("PYTHONPATH"), folder) if each)


def mooncake() -> Path:
    """The folder with Mooncake's store, which processes find by their ``PYTHONPATH``.

    Raises:
        CommandFailed: it can't be installed.
    """
    return _made_once("mooncake", MOONCAKE, _lay)


def _made_once(
    name: str,
    lock: Path,
    install: Callable[[str, Path, Path, Interpreter], None],
    interpreter: Interpreter = THIS_INTERPRETER,
) -> Path:
    digest = hashlib.sha256(f"{interpreter.version} ".encode() + lock.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"{name}-{digest}"
    done = folder / "done"
    with exclusive(cache_folder() / f"{name}.lock", name=name):
        if not done.exists():
            say(name, f"installing into {folder}")
            install(name, folder, lock, interpreter)
            done.touch()
    return folder


def _install(name: str, folder: Path, lock: Path, interpreter: Interpreter) -> None:
    uv, python = Path(sys.executable).with_name("uv"), folder / "bin" / "python"
    made: list[str | Path] = [uv, "venv", "--quiet", "--clear", "--python", interpreter.path, folder]
    watch(name, made, status=written)
    filled: list[str | Path] = [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, lock]
    watch(name, filled, status=written)


def _lay(name: str, folder: Path, lock: Path, interpreter: Interpreter) -> None:
    uv = Path(sys.executable).with_name("uv")
    laid: list[str | Path] = [uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    laid += ["--python", interpreter.path, "--target", folder, "--requirements", lock]
    watch(name, laid, status=written)
