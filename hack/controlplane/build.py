"""Builds etcd, kube-apiserver and kubectl from Go modules, once per pinned version, into the user's cache.

This runs beside the installation of the Python packages, so it imports the standard library only.
"""

import hashlib
import re
import shutil
import subprocess
import time
from pathlib import Path

from controlplane.cache import cache_folder, exclusive
from controlplane.toolchain import NAME, SOURCE, environment, find_go
from progress import say, watch

PROGRAMS = ("etcd", "kube-apiserver", "kubectl")


def kubernetes_version() -> str:
    """The pinned version, such as ``1.36.3``."""
    found = re.search(r"^\tk8s\.io/kubernetes v(\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert found
    return found[1]


def built_programs() -> Path:
    """The folder that holds the built programs; they are built first if need be.

    Raises:
        CommandFailed: the build failed.
    """
    folder = cache_folder() / f"kubernetes-{kubernetes_version()}-{_inputs()}"
    if folder.exists():
        return folder
    with exclusive(cache_folder() / "kubernetes.lock", name=NAME):
        if not folder.exists():
            _build(folder)
    return folder


def _inputs() -> str:
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCE / name).read_bytes())
    return digest.hexdigest()[:12]


def _build(folder: Path) -> None:
    """Build under another name first, so that ``folder`` is complete as soon as it is there."""
    began = time.monotonic()
    say(NAME, f"building Kubernetes {kubernetes_version()} into {folder}; the first time takes 6 to 10 minutes")
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    _compile(unfinished / "kubernetes")
    for name in PROGRAMS:
        (unfinished / name).symlink_to("kubernetes")
    unfinished.rename(folder)
    say(NAME, f"built after {time.monotonic() - began:.0f} s")


def _compile(program: Path) -> None:
    go = find_go()
    watch(
        NAME,
        [go, "list", "-deps", "."],
        status=lambda _, lines: f"downloading Go modules, {lines} so far",
        worth_saying=lambda _: False,
        cwd=SOURCE,
        env=environment(),
    )
    packages = len(_packages(go))
    # -v prints a line for each package that is compiled; those that Go's own cache holds are not among them.
    watch(
        NAME,
        [go, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", _linker_flags(), "-o", program, "."],
        status=lambda _, lines: f"compiled {lines} of at most {packages} packages",
        worth_saying=lambda _: False,
        cwd=SOURCE,
        env=environment(),
    )


def _packages(go: Path) -> list[str]:
    listed = subprocess.run(
        [go, "list", "-deps", "."], cwd=SOURCE, env=environment(), capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def _linker_flags() -> str:
    """Without symbols, and with the version that clients are told."""
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    variables = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())
    return f"-s -w {variables}"
