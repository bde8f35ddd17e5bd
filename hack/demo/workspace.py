"""The part of a cluster that the demo may fill: all of its own control plane, or one new namespace of a given cluster.

In its own control plane the operator uses the service account from the manifests, with its permissions and its guard.
In another cluster these may be in use, so there the operator runs as the user of the kubeconfig.
"""

import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hack.controlplane import Cluster, ControlPlane
from hack.demo.console import command, say
from hack.demo.paths import REPOSITORY
from tenantzone_contract.kube_names import OPERATOR, OPERATOR_NAMESPACE

_CRDS = REPOSITORY / "crds"
_INSTALLATION = REPOSITORY / "manifests" / "base"
_WITHOUT_DEPLOYMENT = ("namespace.yaml", "rbac.yaml", "guard.yaml")
_SERVICE_ACCOUNT = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR}"
_KINDS = tuple(f"{file.stem}.tenantzone.io" for file in sorted(_CRDS.glob("*.yaml")))


@dataclass(frozen=True, slots=True)
class Workspace:
    """The namespace of the demo's objects, and the operator's credentials and Lease."""

    cluster: Cluster
    """With the CRDs in it."""
    namespace: str
    """The namespace of its kubeconfig, which holds everything that the demo makes."""
    operator_kubeconfig: Path
    operator_namespace: str
    """The namespace of the operator's Lease."""


@contextmanager
def workspace(cluster: Cluster, folder: Path) -> Iterator[Workspace]:
    """Objects made in the user's cluster are removed at the end. Existing CRDs are left alone.

    Raises:
        ClusterError: the cluster refuses.
    """
    if isinstance(cluster, ControlPlane):
        _apply_crds(cluster)
        for manifest in _WITHOUT_DEPLOYMENT:
            cluster.kubectl("apply", "-f", str(_INSTALLATION / manifest))
        yield Workspace(cluster, "default", cluster.user_kubeconfig(_SERVICE_ACCOUNT), OPERATOR_NAMESPACE)
        return
    brought_crds = not cluster.kubectl("get", "crd", *_KINDS, "--ignore-not-found", "-o", "name").stdout.strip()
    if brought_crds:
        _apply_crds(cluster)
    else:
        say("The cluster has the CRDs of TenantZone already; the demo uses them as they are.")
    copy = folder / "kubeconfig"
    namespace = f"tenantzone-demo-{secrets.token_hex(3)}"
    cluster.create_namespace(namespace)
    try:
        yield Workspace(_pointed_to(cluster, namespace, copy), namespace, copy, namespace)
    finally:
        say(f"Removing the namespace {namespace}{' and the CRDs' if brought_crds else ''} from {cluster.server}")
        copy.unlink(missing_ok=True)
        cluster.delete_namespace(namespace)
        if brought_crds:
            cluster.kubectl("delete", "crd", *_KINDS, "--timeout=60s")


def _apply_crds(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", str(_CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "crd", *_KINDS, "--timeout=60s")


def _pointed_to(cluster: Cluster, namespace: str, copy: Path) -> Cluster:
    """Returns the same cluster with the demo's own kubeconfig, so that kubectl needs no ``--namespace``."""
    view = cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json").stdout
    kubeconfig = json.loads(view)
    kubeconfig["contexts"][0]["context"]["namespace"] = namespace
    copy.touch(mode=0o600)
    copy.write_text(json.dumps(kubeconfig))
    return Cluster(copy, cluster.server, cluster.kubectl_program)


def show(cluster: Cluster, *args: str, stdin: str | None = None, check: bool = True) -> str:
    """Run kubectl visibly: print the command, its input and its output; returns the output.

    Raises:
        ClusterError: kubectl failed, and ``check`` is set.
    """
    typed = "kubectl " + " ".join(f"'{arg}'" if set(arg) & set(" {}") else arg for arg in args)
    command(f"{typed} <<EOF\n{stdin.strip()}\nEOF" if stdin else typed)
    done = cluster.kubectl(*args, stdin=stdin, check=check)
    answer = (done.stdout + done.stderr).rstrip()
    say(answer)
    return answer


@contextmanager
def watching(cluster: Cluster, *args: str) -> Iterator[IO[str]]:
    """Yields the lines that a kubectl command that does not end prints, as they come."""
    process = subprocess.Popen(
        [cluster.kubectl_program, "--kubeconfig", cluster.kubeconfig, *args], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.wait()
