"""The environment of the measurements: a control plane, the operator as a process, engines, and an observer."""

import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from bench.operator.client import Client
from bench.operator.fleet import Fleet
from bench.operator.observer import Observer
from bench.operator.process import OperatorProcess
from bench.operator.scenarios import Bench
from hack.controlplane import ControlPlane
from hack.ports import free_ports
from tenantzone_operator.kube.credentials.connection import Connection

_ROOT = Path(__file__).parents[2]
OPERATOR = "system:serviceaccount:tenantzone-system:tenantzone-operator"
"""User name with which the operator calls the API server."""


@contextmanager
def control_plane(namespaces: Sequence[str]) -> Iterator[tuple[ControlPlane, Path]]:
    """Start a control plane with the CRDs, the operator's rights and empty namespaces; yields it, and a folder."""
    with tempfile.TemporaryDirectory(prefix="tenantzone-bench-") as name:
        folder = Path(name)
        with ControlPlane(folder / "plane") as plane:
            for manifest in ("crds/tenantzones.yaml", "crds/zonepools.yaml"):
                plane.kubectl("apply", "--server-side", "--filename", str(_ROOT / manifest))
            crds = ("crd/tenantzones.tenantzone.io", "crd/zonepools.tenantzone.io")
            plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *crds)
            for manifest in ("manifests/base/namespace.yaml", "manifests/base/rbac.yaml", "manifests/base/guard.yaml"):
                plane.kubectl("apply", "--filename", str(_ROOT / manifest))
            for namespace in namespaces:
                plane.create_namespace(namespace)
            yield plane, folder


@asynccontextmanager
async def bench_of(
    plane: ControlPlane,
    folder: Path,
    kubeconfig: Path,
    namespace: str | None,
    profile: Path | None = None,
    flags: Sequence[str] = ("--no-leader-elect",),
) -> AsyncIterator[Bench]:
    """Run the operator, an observer and engines until the block ends; an exception prints the operator's log.

    Args:
        plane: a control plane with the CRDs.
        folder: the folder for the operator's log.
        kubeconfig: the operator's kubeconfig.
        namespace: the namespace to watch; None for all.
        profile: see `OperatorProcess`.
        flags: the flags of the operator and of the standby.
    """
    (port,) = free_ports(1)
    async with Client(Connection(str(plane.kubeconfig)).for_kopf) as client:
        operator = OperatorProcess(kubeconfig, folder, profile, flags)
        standby = OperatorProcess(kubeconfig, folder / "standby", None, flags)
        observer, fleet = Observer(client, namespace), Fleet(client, port)
        observer.start()
        await fleet.start(namespace)
        operator.start()
        try:
            yield Bench(client, namespace or "", port, operator, standby, observer, fleet)
        except BaseException:
            with contextlib.suppress(OSError):
                print(operator.log.read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            operator.terminate()
            standby.terminate()
            await observer.stop()
            await fleet.stop()
