"""The files of a release, made only from the committed files."""

import hashlib
import io
import os
import re
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

_OF_A_RELEASE = re.compile(r"tenantzone-.*\.(?:whl|tgz|tar|json)|SHA256SUMS")

_BUILT_UNIX_TIME = "315532800"
"""1980, the first year that zip files know: the same commit gives the same wheel."""

_CONTENTS = {"operator": "operator.txt", "manager": "manager.txt", "engine-cpu": "cpu.txt", "engine-gpu": "gpu.txt"}
"""The parts with an SBOM of their own, and the lock of each. Images contain theirs, too."""


def build(folder: Path, images: Sequence[str]) -> None:
    """Make all files of a release of the last commit.

    Args:
        folder: made if need be, and emptied of what an earlier release left there.
        images: targets of the Dockerfile, as archives that docker and ctr can load.

    Raises:
        CommandFailed: a step failed, or the folder holds something else than a release; then all of it is left there.
        ImageError: images can't be built here.
    """
    _empty(folder)
    with tempfile.TemporaryDirectory(prefix="tenantzone-release-") as temporary:
        source = Path(temporary)
        commit = check_out(source)
        version = version_of(source)
        say(NAME, f"version {version}, commit {commit}, into {folder}")
        wheel(source, folder)
        _chart(source, folder)
        _contents(source, folder, version)
        for target in images:
            say(NAME, f"image {target}")
            build_image(target, tag=version, source=source).export(folder / f"tenantzone-{target}-{version}.tar")
    _checksums(folder)


def _empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    held = list(folder.iterdir())
    for path in held:
        if not path.is_file() or not _OF_A_RELEASE.fullmatch(path.name):
            raise CommandFailed(f"{path} is no file of a release; build into another folder, or remove it")
    for path in held:
        path.unlink()


def check_out(folder: Path) -> str:
    """Write the last commit's files into a folder, and return its name.

    Raises:
        CommandFailed: there is no commit.
    """
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=False)
    if archive.returncode != 0:
        raise CommandFailed(f"a release is made of a commit, and there is none: {archive.stderr.decode().strip()}")
    unpack(io.BytesIO(archive.stdout), folder)
    described: list[str | Path] = ["git", "-C", ROOT, "describe", "--always", "--tags", "--match=v[0-9]*"]
    described += ["--dirty=, without what is not committed"]
    return subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()


def version_of(source: Path) -> str:
    """Returns the version of the checked-out commit: uncommitted files may have another one."""
    command = [sys.executable, "-m", "hack.version"]
    # Python finds modules in the folder that it is started in, before all others.
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=True).stdout.strip()


def wheel(source: Path, folder: Path) -> None:
    """Build it; the same source gives the same file.

    Raises:
        CommandFailed: the build failed.
    """
    say(NAME, "the wheel")
    uv, python = Path(sys.executable).with_name("uv"), build_tools() / "python"
    command: list[str | Path] = [
        uv,
        "build",
        "--quiet",
        "--wheel",
        "--no-create-gitignore",
        "--out-dir",
        folder,
        source,
    ]
    # What a wheel is built with comes from a lock, and not from wherever uv would take it.
    given: list[str | Path] = ["--no-build-isolation", "--python", python]
    environment = os.environ | {"SOURCE_DATE_EPOCH": _BUILT_UNIX_TIME}
    watch(NAME, [*command, *given], status=written, env=environment)


def _chart(source: Path, folder: Path) -> None:
    say(NAME, "the chart")
    command: list[str | Path] = [helm(), "package", source / "manifests" / "chart", "--destination", folder]
    watch(NAME, command, status=written, worth_saying=lambda _: False)


def _contents(source: Path, folder: Path, version: str) -> None:
    for name, lock in _CONTENTS.items():
        say(NAME, f"what is in {name}, by requirements/{lock}")
        file = folder / f"tenantzone-{name}-{version}.cdx.json"
        command: list[str | Path] = [build_tools() / "cyclonedx-py", "requirements", source / "requirements" / lock]
        command += ["--pyproject", source / "pyproject.toml", "--output-file", file]
        command += ["--output-reproducible", "--output-format", "JSON"]
        # It warns that a lock does not say which package needs which.
        watch(NAME, command, status=written, worth_saying=lambda _: False)


def _checksums(folder: Path) -> None:
    """Write checksums for ``sha256sum --check``."""
    files = sorted(folder.iterdir())
    lines = []
    for file in files:
        say(NAME, f"{file.name}  {file.stat().st_size / 1e3:,.0f} kB")
        with file.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {file.name}\n")
    (folder / CHECKSUMS).write_text("".join(lines))
