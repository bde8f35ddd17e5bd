"""The files of a release, made of what is committed and nothing else."""

import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.archives import unpack
from hack.images.build import build as build_image
from hack.manifests.tools import helm
from hack.progress import CommandFailed, say, watch, written
from hack.release.tools import build_tools
from hack.version import ROOT

NAME = "release"
DISTRIBUTION = ROOT / "dist"
CHECKSUMS = "SHA256SUMS"

_BUILT_UNIX_TIME = "315532800"
"""1980, the first year that zip files know: the same commit gives the same wheel."""

_CONTENTS = {"operator": "operator.txt", "engine-cpu": "cpu.txt", "engine-gpu": "gpu.txt"}
"""What is told of in an SBOM of its own, and the lock that says what is in it. Images carry theirs inside, too."""


def build(folder: Path, images: Sequence[str]) -> None:
    """Make all files of a release of the last commit.

    Args:
        folder: emptied of what an earlier release left there.
        images: targets of the Dockerfile, as archives that docker and ctr can load.

    Raises:
        CommandFailed: a step failed.
        ImageError: images can't be built here.
    """
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    with tempfile.TemporaryDirectory(prefix="tenantzone-release-") as temporary:
        source = Path(temporary)
        commit = _check_out(source)
        version = _version_of(source)
        say(NAME, f"version {version}, commit {commit}, into {folder}")
        _wheel(source, folder)
        _chart(source, folder)
        _contents(source, folder, version)
        for target in images:
            say(NAME, f"image {target}")
            build_image(target, source=source).export(folder / f"tenantzone-{target}-{version}.tar")
    _checksums(folder)


def _check_out(folder: Path) -> str:
    """Write the last commit's files into a folder, and return its name."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=False)
    if archive.returncode != 0:
        raise CommandFailed(f"a release is made of a commit, and there is none: {archive.stderr.decode().strip()}")
    unpack(io.BytesIO(archive.stdout), folder)
    described: list[str | Path] = [
        "git",
        "-C",
        ROOT,
        "describe",
        "--always",
        "--tags",
        "--match",
        "v[0-9]*",
        "--dirty=, and changes left out",
    ]
    done = subprocess.run(described, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _version_of(source: Path) -> str:
    """Of what was checked out: what is not committed may say another one."""
    command = [sys.executable, "-m", "hack.version"]
    environment = os.environ | {"PYTHONPATH": str(source)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def _wheel(source: Path, folder: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    python = build_tools() / "python"
    command: list[str | Path] = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", python]
    # uv's build front end is given an environment that has all that it takes, by hash.
    environment = os.environ | {"SOURCE_DATE_EPOCH": _BUILT_UNIX_TIME}
    watch(NAME, [*command, "--out-dir", folder, source], status=written, env=environment)
    # uv keeps built files out of version control; nobody asked for that.
    (folder / ".gitignore").unlink(missing_ok=True)


def _chart(source: Path, folder: Path) -> None:
    command: list[str | Path] = [helm(), "package", source / "manifests" / "chart", "--destination", folder]
    watch(NAME, command, status=written)


def _contents(source: Path, folder: Path, version: str) -> None:
    for name, lock in _CONTENTS.items():
        file = folder / f"tenantzone-{name}-{version}.cdx.json"
        command: list[str | Path] = [
            build_tools() / "cyclonedx-py",
            "requirements",
            "--output-reproducible",
            "--output-format",
            "JSON",
        ]
        project = ("--pyproject", source / "pyproject.toml", "--output-file", file)
        watch(NAME, [*command, *project, source / "requirements" / lock], status=written)


def _checksums(folder: Path) -> None:
    """As ``sha256sum --check`` reads them."""
    files = sorted(folder.iterdir())
    lines = []
    for file in files:
        say(NAME, f"{file.name}  {file.stat().st_size / 1e6:.1f} MB")
        with file.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {file.name}\n")
    (folder / CHECKSUMS).write_text("".join(lines))
