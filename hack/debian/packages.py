"""Downloads, unpacks and installs packages with apt, from where this machine gets its packages."""

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from hack.progress import CommandFailed, say, watch, written
from hack.search_path import environment

NAME = "packages"


def distribution() -> str:
    """Returns the distribution, such as ``debian-12``: packages of another one may need another C library.

    Raises:
        FileNotFoundError: this is no Linux that says what it is.
    """
    release = platform.freedesktop_os_release()
    return f"{release['ID']}-{release.get('VERSION_ID', 'unstable')}"


def unpack(packages: Sequence[str], folder: Path) -> None:
    """Download packages and unpack them into one folder, which is complete as soon as it exists.

    Raises:
        CommandFailed: apt knows no such package, or can't reach its mirror.
        FileNotFoundError: this machine has no apt.
    """
    say(NAME, f"downloading {', '.join(packages)} into {folder}")
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    download = unfinished / "download"
    download.mkdir(parents=True)
    for package in packages:
        _download(package, download)
    for file in download.glob("*.deb"):
        _run("dpkg", "-x", file, unfinished)
    shutil.rmtree(download)
    unfinished.rename(folder)


def install(package: str) -> None:
    """Install a package with its dependencies; for root only.

    Raises:
        CommandFailed: apt could not.
        FileNotFoundError: this machine has no apt.
    """
    say(NAME, f"installing {package} with the libraries that it needs")
    quiet = environment() | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ("apt-get", "install", "--yes", "--no-install-recommends", package)
    try:
        _run(*command, env=quiet)
    except CommandFailed:
        # No lists of packages yet, as in a fresh container, or lists so old that the mirror has dropped their files.
        _run("apt-get", "update")
        _run(*command, env=quiet)


def _download(package: str, folder: Path) -> None:
    try:
        _run("apt-get", "download", package, cwd=folder)
    except CommandFailed:
        own = _own_lists(folder)
        _run("apt-get", *own, "update")
        _run("apt-get", *own, "download", package, cwd=folder)


def _own_lists(folder: Path) -> Sequence[str]:
    """Options that make apt keep its lists in a folder of ours: those of the machine belong to root."""
    lists, cache = folder / "lists", folder / "cache"
    for needed in (lists / "partial", cache / "archives" / "partial"):
        needed.mkdir(parents=True, exist_ok=True)
    return ("-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}")


def _run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    watch(NAME, command, status=written, worth_saying=lambda _: False, cwd=cwd, env=env)
