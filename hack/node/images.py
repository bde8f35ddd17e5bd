"""The images that every node has: for pods' sandboxes, with a shell, and one that borrows the machine's programs."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from hack.node.image import write_image
from hack.node.settings import PAUSE_IMAGE
from hack.search_path import find_program

SHELL_IMAGE = "tenantzone.test/shell:1"
"""busybox, and a link to it for each of its commands."""

HOST_IMAGE = "tenantzone.test/host:1"
"""Empty folders to mount the machine's own over: /usr, and wherever a Python environment lies."""

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64")
"""Links into /usr, as on the machine itself."""


def write_images(folder: Path) -> None:
    """Write the archives into the folder."""
    with tempfile.TemporaryDirectory(prefix="tenantzone-images-") as scratch:
        shell, host = Path(scratch) / "shell", Path(scratch) / "host"
        _shell(shell)
        _host(host)
        write_image(folder / "pause.tar", PAUSE_IMAGE, shell, ["/bin/sleep", "infinity"])
        write_image(folder / "shell.tar", SHELL_IMAGE, shell, ["/bin/sh"])
        write_image(folder / "host.tar", HOST_IMAGE, host, ["/usr/bin/true"])


def _shell(root: Path) -> None:
    busybox = find_program("busybox")
    assert busybox is not None
    programs = root / "bin"
    programs.mkdir(parents=True)
    shutil.copy(busybox, programs / "busybox")
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        if name != "busybox":
            (programs / name).symlink_to("busybox")
    (root / "etc").mkdir()
    _make_tmp(root)


def _host(root: Path) -> None:
    for entry in Path("/").iterdir():
        if entry.name in _MERGED and entry.is_symlink():
            (root / entry.name).parent.mkdir(exist_ok=True)
            (root / entry.name).symlink_to(entry.readlink())
        elif entry.is_dir() and entry.name != "tmp":
            (root / entry.name).mkdir(parents=True)
    _make_tmp(root)
    # What programs of the machine look up about users and libraries.
    for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
        shutil.copy(Path("/etc") / name, root / "etc" / name)


def _make_tmp(root: Path) -> None:
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
