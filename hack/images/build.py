"""The inputs for building an image here: a base, wheels, and the Dockerfile."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.cache import cache_folder, exclusive
from hack.debian import packages
from hack.images import buildah
from hack.images.buildah import NAME
from hack.progress import say, watch, written
from hack.search_path import environment, find_program
from hack.version import VERSION

ROOT = Path(__file__).parent.parent.parent
SUITE = "bookworm"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
"""The packages of official Python images that the Dockerfile needs."""

TARGETS = ("operator", "manager", "engine", "engine-cpu")
"""The images that can be built here. The engine for GPUs has a small base instead of vLLM's image: it can be built, and
does not serve. The one for CPUs serves; it has 7 GB, and takes three times as much during the build."""

VLLM_PACKAGES = ("msgspec", "pydantic", "prometheus-client")
"""The packages of vLLM's image that our wheel needs at once."""

_OF_OLDER_PYTHONS = re.compile(r" ; python_full_version < '3\.11\.\d+'")
"""The base has Debian's Python 3.11.2, and needs what a later one that downloads for it does not."""

_WHEELS = "/wheels-of-others"
"""The folder of downloaded wheels in the build."""

_BUILT_UNIX_TIME = "315532800"
"""1980, the first year that zip files know: images with the same content are the same image."""


class ImageError(Exception):
    """An image can't be built here; the message says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that was built."""

    name: str
    digest: str
    size_bytes: int
    """Unpacked."""

    def inspect(self) -> dict[str, object]:
        """Returns its configuration, as in the OCI image specification."""
        return dict(json.loads(buildah.ask("inspect", "--type=image", self.name))["OCIv1"])

    def export(self, archive: Path) -> None:
        """Write an archive that ``docker load`` and ``ctr images import`` read."""
        archive.unlink(missing_ok=True)
        buildah.run("push", "--quiet", self.name, f"docker-archive:{archive}:{self.name}")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container of the image, as its user, and return its output."""
        container = buildah.ask("from", "--pull=never", self.name)
        try:
            arguments = buildah.command("run", container, "--", *command)
            return subprocess.run(arguments, capture_output=True, text=True, env=buildah.environment(), check=False)
        finally:
            buildah.ask("rm", container)


def build(target: str, *, tag: str = VERSION, source: Path = ROOT) -> Image:
    """Build one target of the Dockerfile.

    Args:
        target: one of ``TARGETS``.
        tag: of the image; its name is the target's.
        source: the project's folder; another one for another commit.

    Raises:
        ImageError: this is not root, or not Debian.
        CommandFailed: a step of the build failed.
    """
    if os.geteuid() != 0:
        raise ImageError("building without a registry needs root; use docker build instead")
    name = f"localhost/tenantzone-{target}:{tag}"
    with exclusive(buildah.storage() / "lock", name=NAME):
        base, wheels = _base(), _wheels(target, source)
        engine_base = _with_packages(base, wheels) if target == "engine" else base
        say(NAME, f"building {name}")
        buildah.run(
            "bud", "--pull=never", "--layers=false", f"--timestamp={_BUILT_UNIX_TIME}", f"--target={target}",
            f"--build-arg=PYTHON={base}", f"--build-arg=VLLM={engine_base}",
            "--build-arg=PIP_NO_INDEX=1", f"--build-arg=PIP_FIND_LINKS={_WHEELS}",
            f"--volume={wheels}:{_WHEELS}:ro", f"--tag={name}", source,
        )  # fmt: skip
        # What had the name before, and what the build's stages left.
        buildah.ask("rmi", "--prune")
    (found,) = json.loads(buildah.ask("images", "--json", name))
    return Image(name, str(found["id"]), _size(name))


def _size(name: str) -> int:
    container = buildah.ask("from", "--pull=never", name)
    try:
        folder = Path(buildah.ask("mount", container))
        return sum(path.lstat().st_size for path in folder.rglob("*"))
    finally:
        buildah.ask("rm", container)


def _base() -> str:
    """An image with Python, made once."""
    name = f"localhost/python:{SUITE}-{hashlib.sha256(' '.join(BASE_PACKAGES).encode()).hexdigest()[:12]}"
    for program in ("buildah", "debootstrap"):
        if find_program(program) is None:
            packages.install(program)
    if buildah.ask("images", "--quiet", name):
        return name
    say(NAME, f"making {name} with debootstrap; once, about a minute")
    folder = buildah.storage() / "base"
    shutil.rmtree(folder, ignore_errors=True)
    include = f"--include={','.join(BASE_PACKAGES)}"
    watch(
        NAME,
        # In its own mount namespace, because an interrupted debootstrap would leave /proc mounted in the folder.
        ["unshare", "--mount", "debootstrap", "--variant=minbase", include, SUITE, folder],
        status=written,
        worth_saying=lambda _: False,
        env=environment(),
    )
    container = buildah.ask("from", "scratch")
    buildah.run("add", "--quiet", container, folder, "/")
    buildah.run("commit", "--quiet", "--rm", container, name)
    shutil.rmtree(folder)
    return name


def _with_packages(base: str, wheels: Path) -> str:
    """Stands for vLLM's image."""
    name = f"{base}-with-{'-'.join(VLLM_PACKAGES)}"
    if not buildah.ask("images", "--quiet", name):
        container = buildah.ask("from", "--pull=never", base)
        install = ("python3", "-m", "pip", "install", "--quiet", "--break-system-packages", "--no-index")
        find = f"--find-links={_WHEELS}"
        buildah.run("run", f"--volume={wheels}:{_WHEELS}:ro", container, "--", *install, find, *VLLM_PACKAGES)
        buildah.run("commit", "--quiet", "--rm", container, name)
    return name


def _wheels(target: str, source: Path) -> Path:
    """The wheels of the lock files, downloaded once."""
    # The engine for GPUs stands on a base with packages of the operator's.
    locks = {"engine": ("operator.txt", "engine.txt"), "engine-cpu": ("cpu.txt",), "manager": ("manager.txt",)}
    names = ("build.txt", *locks.get(target, ("operator.txt",)))
    files = [source / "requirements" / name for name in names]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    folder = cache_folder() / f"wheels-{digest}"
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for file in files:
            wanted = unfinished / file.name
            wanted.write_text(_OF_OLDER_PYTHONS.sub("", file.read_text()))
            # The locks are complete; and one of them overrides what packages say that they need.
            command = (
                *(sys.executable, "-m", "pip", "download", "--quiet"),
                *("--require-hashes", "--no-deps", "--dest", unfinished),
            )
            watch(NAME, (*command, "--requirement", wanted), status=written)
        unfinished.rename(folder)
    return folder
