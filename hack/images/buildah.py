"""buildah, with a storage of our own: nothing of it lands among the machine's images."""

import subprocess
from pathlib import Path

from hack import search_path
from hack.controlplane.cache import cache_folder
from hack.progress import watch, written

NAME = "images"


def storage() -> Path:
    """Returns the folder that images are kept in."""
    folder = cache_folder() / "images"
    folder.mkdir(exist_ok=True)
    return folder


def run(*arguments: str | Path) -> None:
    """Run buildah with visible progress.

    Raises:
        CommandFailed: with the end of its output.
    """
    watch(
        NAME, command(*arguments), status=written, worth_saying=lambda line: line.startswith("STEP"), env=environment()
    )


def ask(*arguments: str | Path) -> str:
    """Returns buildah's output; empty if it fails."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(), check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def command(*arguments: str | Path) -> list[str | Path]:
    """A command line of buildah."""
    return [
        "buildah",
        "--storage-driver=vfs",
        "--root",
        storage() / "store",
        "--runroot",
        storage() / "run",
        *arguments,
    ]


def environment() -> dict[str, str]:
    """Returns buildah's environment."""
    # Works in containers, too: no namespaces, no control groups.
    return search_path.environment() | {"BUILDAH_ISOLATION": "chroot"}
