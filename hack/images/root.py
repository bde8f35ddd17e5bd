"""Collects what a Python environment needs to run, as the root folder of an image: no shell, no package manager.

That is the interpreter with its standard library, the environment, and the shared libraries that either of them loads.
It runs while an image is built, so it imports the standard library only.
"""

import argparse
import compileall
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

UNNEEDED = ("config-*", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo", "venv")
"""Parts of the standard library to leave out: tests, user interfaces, and what makes other environments."""

USER = "tenantzone:x:65532:65532:TenantZone:/tmp:/sbin/nologin"


def main() -> None:
    """Make the root folder of an image from a Python environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True, help="the folder to make")
    arguments = parser.parse_args()
    root: Path = arguments.root
    root.mkdir(parents=True)
    _copy_links_to_usr(root)
    copied = [*_interpreter(root), *_environment(root, arguments.environment)]
    libraries = _libraries(copied)
    for library in libraries:
        _copy(root, library)
    _files_of_the_system(root)
    _compile(root, arguments.environment)
    _note_packages(root, [Path(sys.executable).resolve(), *libraries])


def _copy_links_to_usr(root: Path) -> None:
    """Copy links like /bin and /lib, which most systems have: files copied through them must be at their targets."""
    for path in Path("/").glob("*"):
        if path.is_symlink() and str(path.readlink()).startswith("usr/"):
            (root / path.name).symlink_to(path.readlink())
            (root / path.readlink()).mkdir(parents=True, exist_ok=True)


def _copy(root: Path, path: Path) -> None:
    """One file, and the links that lead to it."""
    target = root / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() or target.is_symlink():
        return
    if path.is_symlink():
        target.symlink_to(path.readlink())
        _copy(root, path.parent / path.readlink())
    else:
        shutil.copy2(path, target)


def _interpreter(root: Path) -> list[Path]:
    """Returns what may load libraries."""
    executable = Path(sys.executable).resolve()
    _copy(root, executable)
    for name in ("python3", "python"):
        link = executable.parent / name
        if link.is_symlink():
            _copy(root, link)
    library = Path(sysconfig.get_path("stdlib"))
    unneeded = shutil.ignore_patterns("__pycache__", "dist-packages", "site-packages", *UNNEEDED)
    shutil.copytree(library, root / library.relative_to("/"), symlinks=True, ignore=unneeded)
    return [executable, *library.rglob("lib-dynload/*.so")]


def _environment(root: Path, environment: Path) -> list[Path]:
    """Returns what may load libraries."""
    unneeded = shutil.ignore_patterns("__pycache__", "activate*", "Activate*")
    shutil.copytree(environment, root / environment.relative_to("/"), symlinks=True, ignore=unneeded)
    return list(environment.rglob("*.so*"))


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """The shared libraries of the system that programs and extension modules are linked with."""
    found: set[Path] = set()
    for program in programs:
        shown = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        found.update(Path(path) for path in re.findall(r"(/\S+) \(0x", shown))
    return sorted(path for path in found if str(path).startswith(("/lib", "/usr/lib", "/usr/local/lib")))


def _files_of_the_system(root: Path) -> None:
    folder = root / "etc"
    folder.mkdir(exist_ok=True)
    (folder / "passwd").write_text(f"root:x:0:0:root:/root:/sbin/nologin\n{USER}\n")
    (folder / "group").write_text("root:x:0:\ntenantzone:x:65532:\n")
    (folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for path in (Path("/etc/os-release"), Path("/etc/ssl/certs/ca-certificates.crt")):
        if path.exists():
            _copy(root, path)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def _compile(root: Path, environment: Path) -> None:
    """Byte code that does not depend on times: nobody can write it later, and the same files come out each time."""
    for folder in (Path(sysconfig.get_path("stdlib")), environment):
        compileall.compile_dir(
            root / folder.relative_to("/"),
            stripdir=root,
            prependdir="/",
            quiet=2,
            workers=0,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def _note_packages(root: Path, files: Iterable[Path]) -> None:
    """Say which packages of the distribution the files are of, where scanners of images look for it."""
    if shutil.which("dpkg-query") is None:
        return
    folder = root / "var" / "lib" / "dpkg" / "status.d"
    folder.mkdir(parents=True)
    for package in {_package_of(file) for file in files} - {""}:
        status = subprocess.run(["dpkg-query", "--status", package], capture_output=True, text=True, check=True)
        (folder / package.partition(":")[0]).write_text(status.stdout)


def _package_of(file: Path) -> str:
    """The package that brought a file; packages name it through links or without them."""
    names = {str(file), str(file.resolve()), str(file.resolve()).removeprefix("/usr")}
    found = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True, check=False)
    return found.stdout.partition(": ")[0]


if __name__ == "__main__":
    main()
