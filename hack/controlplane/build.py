"""Builds programs from Go modules, once per pinned version, into the user's cache: etcd, kube-apiserver and kubectl.

This runs at the same time as the installation of the Python packages, so it imports only the standard library.
"""

import hashlib
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.cache import cache_folder, exclusive
from hack.controlplane.toolchain import SOURCE, environment, find_go
from hack.progress import say, watch


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A Go module of ours that pins one program, which is called by several names."""

    name: str
    """Starts its lines of progress, and its folder in the cache."""
    source: Path
    """The folder with ``go.mod`` and ``go.sum``, and with ``main.go`` unless the module names the program as a tool."""
    called: tuple[str, ...]
    module: str
    """The module whose pinned version is the program's version."""
    takes: str
    """How long a first build takes, for people who wait for it."""
    linker_flags: str = ""
    package: str = "."
    """The package to compile: our own ``main.go``, or the program's package."""

    def version(self) -> str:
        """The pinned version, such as ``1.36.3``."""
        pinned = re.search(
            rf"\s{re.escape(self.module)} v(\S+)( // indirect)?$", (self.source / "go.mod").read_text(), re.MULTILINE
        )
        assert pinned, f"{self.source}/go.mod requires no {self.module}"
        return pinned[1]

    def folder(self) -> Path:
        """The folder that holds the program under each of its names; it is built first if need be.

        Raises:
            CommandFailed: the build failed.
        """
        folder = cache_folder() / f"{self.name}-{self.version()}-{self._inputs()}"
        if folder.exists():
            return folder
        with exclusive(cache_folder() / f"{self.name}.lock", name=self.name):
            if not folder.exists():
                self._build(folder)
        return folder

    def _inputs(self) -> str:
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum", *(["main.go"] if self.package == "." else [])):
            digest.update((self.source / name).read_bytes())
        return digest.hexdigest()[:12]

    def _build(self, folder: Path) -> None:
        """Build under another name first, so that ``folder`` is complete as soon as it exists."""
        began = time.monotonic()
        say(self.name, f"building {self.module} {self.version()} into {folder}; the first time takes {self.takes}")
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        self._compile(unfinished / self.name)
        for name in self.called:
            if name != self.name:
                (unfinished / name).symlink_to(self.name)
        unfinished.rename(folder)
        say(self.name, f"built after {time.monotonic() - began:.0f} s")

    def _compile(self, program: Path) -> None:
        go = find_go()
        watch(
            self.name,
            [go, "list", "-deps", self.package],
            status=lambda _, lines: f"downloading Go modules, {lines} so far",
            worth_saying=lambda _: False,
            cwd=self.source,
            env=environment(),
        )
        packages = len(self._packages(go))
        flags = f"-s -w {self.linker_flags}"
        # -v prints a line for each package that is compiled; those that Go's own cache holds are not among them.
        watch(
            self.name,
            [go, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", program, self.package],
            status=lambda _, lines: f"compiled {lines} of at most {packages} packages",
            worth_saying=lambda _: False,
            cwd=self.source,
            env=environment(),
        )

    def _packages(self, go: Path) -> list[str]:
        listed = subprocess.run(
            [go, "list", "-deps", self.package],
            cwd=self.source,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return listed.stdout.splitlines()


def kubernetes_program(name: str, source: Path, called: tuple[str, ...], takes: str) -> GoProgram:
    """One that is made of Kubernetes' own modules, and says which version it is of."""
    module = "k8s.io/kubernetes"
    unstamped = GoProgram(name, source, called, module, takes)
    version = unstamped.version()
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    variables = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())
    return GoProgram(name, source, called, module, takes, variables)


KUBERNETES = kubernetes_program("kubernetes", SOURCE, ("etcd", "kube-apiserver", "kubectl"), "6 to 10 minutes")


def kubernetes_version() -> str:
    """The pinned version, such as ``1.36.3``."""
    return KUBERNETES.version()


def built_programs() -> Path:
    """The folder that holds the built programs of a control plane; they are built first if need be.

    Raises:
        CommandFailed: the build failed.
    """
    return KUBERNETES.folder()
