"""Several operators at once; each is its own user with the shipped rights, so the audit log distinguishes them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.controlplane import ControlPlane
from tests.operator.audit import AuditLog
from tests.operator.conftest import Operator
from tests.operator.kube import eventually
from tests.operator.lease import NAME, NAMESPACE

SHORT = (
    *("--leader-elect-lease-duration", "4s"),
    *("--leader-elect-renew-deadline", "3s"),
    *("--leader-elect-retry-period", "500ms"),
)
"""For tests that are not about durations."""


class Replica(Operator):
    """One of several operators."""

    def __init__(self, kubeconfig: Path, log: Path, user: str, flags: tuple[str, ...]) -> None:
        super().__init__(kubeconfig, log, "--leader-elect-namespace", NAMESPACE, *flags)
        self.user = user
        self.flags = flags


class Replicas:
    """The operators that a module's tests share; one that a test ends is started again by the next test."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._made: dict[str, Replica] = {}
        self.begin()

    def begin(self) -> None:
        """Begins a test: earlier requests do not count."""
        self.audit = AuditLog(self._plane.audit_log)

    def add(self, name: str, *flags: str, server: str = "") -> Replica:
        """Starts one.

        Args:
            name: the name of its service account.
            flags: further flags.
            server: the API server's address, if it is not the usual one.
        """
        self._plane.kubectl("apply", "--filename=-", stdin=json.dumps(_bindings(name)))
        user = f"system:serviceaccount:{NAMESPACE}:{name}"
        kubeconfig = self._plane.user_kubeconfig(user)
        if server:
            moved = self._folder / f"{name}.kubeconfig"
            moved.write_text(kubeconfig.read_text().replace(self._plane.server, server))
            kubeconfig = moved
        self._made[name] = Replica(kubeconfig, self._folder / f"{name}.log", user, flags)
        self._made[name].start()
        return self._made[name]

    def two(self, *flags: str) -> tuple[Replica, Replica]:
        """Two running operators: the leader, and the other once it could take over."""
        names = ("left", "right")
        if any(replica.flags != flags or name not in names for name, replica in self._made.items()):
            self.end()
        for name in names:
            if name not in self._made or not self._made[name].is_running:
                self.add(name, *flags)
        left, right = (self._made[name] for name in names)
        for replica in (left, right):
            replica.await_running()
        eventually(lambda: left.is_leading() != right.is_leading())
        return (left, right) if left.is_leading() else (right, left)

    def end(self) -> None:
        """Ends all of them; the Lease has no holder then."""
        made, self._made = self._made, {}
        for replica in made.values():
            if replica.is_running:
                replica.kill()
            assert "Traceback" not in replica.log, replica.log
        self._plane.kubectl("delete", "lease", NAME, "--namespace", NAMESPACE, "--ignore-not-found")


@contextmanager
def replicas_of(plane: ControlPlane, folder: Path) -> Iterator[Replicas]:
    """Replicas, none at first; the Lease has no holder."""
    replicas = Replicas(plane, folder)
    replicas.end()
    try:
        yield replicas
    finally:
        replicas.end()


def _bindings(name: str) -> dict[str, object]:
    """The shipped roles for another service account."""
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]
    group = "rbac.authorization.k8s.io"

    def binding(kind: str) -> dict[str, object]:
        return {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": {"name": f"{NAME}-{name}", "namespace": NAMESPACE if kind == "Role" else None},
            "roleRef": {"apiGroup": group, "kind": kind, "name": NAME},
            "subjects": subjects,
        }

    return {"apiVersion": "v1", "kind": "List", "items": [binding("ClusterRole"), binding("Role")]}
