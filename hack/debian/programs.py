"""The known programs, and where to find each."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.cache import cache_folder, exclusive
from hack.debian import packages
from hack.debian.relocation import relocated, with_libraries
from hack.progress import CommandFailed


class DebianError(Exception):
    """A program that is not there and can't be got; the message says what to install by hand."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program and the package that has it."""

    package: str
    names: tuple[str, ...]
    """Its names on PATH, the package's own name first."""
    unpackable: bool = True
    """Whether it runs out of its unpacked package, without the packages that it depends on."""
    home: str = ""
    """A folder of its package that it looks for at this very path, and does not run without."""
    beside: tuple[str, ...] = ()
    """Packages that it does not run without, and that may be missing: of its own source, and of libraries."""


PROGRAMS = {
    "prometheus": Program("prometheus", ("prometheus",)),
    "promtool": Program("prometheus", ("promtool",)),
    "alertmanager": Program(
        "prometheus-alertmanager",
        ("prometheus-alertmanager", "alertmanager"),
        home="/usr/share/prometheus/alertmanager",
    ),
    "redis-server": Program("redis-server", ("redis-server",), beside=("redis-tools", "libjemalloc2", "liblzf1")),
    "chromium": Program("chromium", ("chromium", "chromium-browser", "google-chrome"), unpackable=False),
}


def ensure(name: str) -> Path:
    """The program's path: from PATH, else from the cache, where it is put first if need be.

    Args:
        name: one of ``PROGRAMS``.

    Raises:
        DebianError: it is not there and can't be got.
    """
    program = PROGRAMS[name]
    found = _on_path(program)
    if found is not None:
        return found
    try:
        return _from_cache(program) if program.unpackable else _installed(program)
    except (CommandFailed, FileNotFoundError) as error:
        raise DebianError(f"{name} is not on PATH, and could not be got: {error}\n{_by_hand(program)}") from None


def _on_path(program: Program) -> Path | None:
    found = next(filter(None, map(shutil.which, program.names)), None)
    return Path(found).absolute() if found else None


def _from_cache(program: Program) -> Path:
    """The path of a program in the cache, where it is put first if it is not there.

    Raises:
        CommandFailed: the package could not be downloaded or unpacked.
        FileNotFoundError: this machine has no apt, or its package has no such program.
    """
    folder = cache_folder() / "debian" / f"{packages.distribution()}-{program.package}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with exclusive(folder.with_name(f"{folder.name}.lock"), name=packages.NAME):
            if not folder.exists():
                packages.unpack((program.package, *program.beside), folder)
    path = folder / "usr" / "bin" / program.names[0]
    if program.home:
        path = relocated(path, folder, program.home)
    if program.beside:
        path = with_libraries(path, folder)
    # A program that lacks a library says so now, by its name, and not in the middle of a test.
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        raise CommandFailed(f"{path} --version ended with exit code {shown.returncode}:\n{shown.stderr.strip()}")
    return path


def _installed(program: Program) -> Path:
    if os.geteuid() != 0:
        raise DebianError(f"{program.names[0]} is not on PATH, and only root can install it.\n{_by_hand(program)}")
    with exclusive(cache_folder() / "debian.lock", name=packages.NAME):
        if _on_path(program) is None:
            packages.install(program.package)
    found = _on_path(program)
    if found is None:
        raise FileNotFoundError(f"the package {program.package} has none of {', '.join(program.names)}")
    return found


def _by_hand(program: Program) -> str:
    return (
        f"Install it by hand, on Debian and Ubuntu with: apt-get install --no-install-recommends {program.package}\n"
        f"Elsewhere, put one of these on PATH: {', '.join(program.names)}"
    )
