"""The plugin as kubectl runs it, on its own control plane: some tests break it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hack.controlplane import ControlPlane
from tests.cli.konnectivity import Routes, egress_configuration, tunnels
from tests.operator.kube import Kube, proxied

REPOSITORY = Path(__file__).parents[2]

Start = Callable[..., subprocess.Popen[Any]]
Plugin = Callable[..., subprocess.CompletedProcess[str]]


class Clinic(ControlPlane):
    """A control plane without our CRDs, whose API server reaches pods through a proxy.

    Attributes:
        routes: the real addresses of the pods.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "plane")
        self.routes: Routes = {}
        # A socket's path must be short.
        self.socket = folder / "egress"
        self._egress = folder / "egress.yaml"
        self._egress.write_text(egress_configuration(self.socket))

    def _apiserver_flags(self) -> dict[str, object]:
        return super()._apiserver_flags() | {"egress-selector-config-file": self._egress}

    def install_crds(self) -> None:
        crds = str(REPOSITORY / "crds")
        self.kubectl("apply", "--server-side", "--force-conflicts", "--filename", crds)
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", "--filename", crds)


@pytest.fixture(scope="session")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    plane = Clinic(tmp_path_factory.mktemp("clinic"))
    with tunnels(plane.socket, plane.routes), plane:
        yield plane


@pytest.fixture(scope="session")
def clinic_kube(clinic: Clinic) -> Iterator[Kube]:
    with proxied(clinic) as made:
        yield made


@pytest.fixture(scope="session")
def start(clinic: Clinic, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts kubectl with these arguments; it finds the plugin on its path. Further arguments are for ``Popen``."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("kubectl-tz", "kubectl-tenantzone"):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tenantzone_cli "$@"\n')
        script.chmod(0o755)
    paths = (folder, clinic.kubectl_program.parent, os.environ["PATH"])
    environment = os.environ | {
        "PATH": os.pathsep.join(map(str, paths)),
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("operator", "runtime")),
        "KUBECONFIG": str(clinic.kubeconfig),
    }

    def run(*arguments: str, variables: Mapping[str, str] = MappingProxyType({}), **options: Any) -> Any:
        # As in a terminal, although the process that runs the tests may ignore Ctrl-C, as a shell's background jobs do.
        return subprocess.Popen(
            [clinic.kubectl_program, *arguments],
            env=environment | variables,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            **options,
        )

    return run


@pytest.fixture(scope="session")
def plugin(start: Start) -> Plugin:
    """Runs kubectl with these arguments to its end; keywords are variables of its environment."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with start(*arguments, variables=variables, **pipes) as process:
            output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    return run
