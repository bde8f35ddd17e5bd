"""A cluster and its KV-cache manager, and what a test does with both."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import Cluster, ControlPlane
from hack.harness.manager_access import AUDIENCE, RIGHTS, token_of
from tests.operator.kube import Kube, eventually
from tests.operator.manager_process import ManagerProcess
from tests.operator.world import conditions

SIZE = 4096
API = "/apis/tenantzone.io/v1alpha1"


@dataclass
class ManagerSite:
    """A cluster with a manager."""

    kube: Kube
    manager: ManagerProcess
    folder: Path

    def create(self, kind: str, name: str, **spec: Any) -> None:
        body = {"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.kube.call("POST", f"{API}/{kind.lower()}s", body)

    def disk(self, name: str, **spec: Any) -> Path:
        """A storage with its own folder."""
        path = self.folder / name
        path.mkdir()
        self.create("KVStorage", name, type="FileSystem", fileSystem={"path": str(path)}, **spec)
        return path

    def path(self, kind: str, name: str) -> str:
        return f"{API}/{kind.lower()}s/{name}"

    def change(self, kind: str, name: str, **spec: Any) -> None:
        self.kube.merge(self.path(kind, name), {"spec": spec})

    def delete(self, kind: str, name: str) -> None:
        self.kube.call("DELETE", self.path(kind, name))

    def status(self, kind: str, name: str) -> dict[str, Any]:
        found = self.kube.get(self.path(kind, name))
        assert found is not None
        return found.get("status", {})

    def condition(self, kind: str, name: str, condition: str, status: str, reason: str = "") -> dict[str, Any]:
        """The condition, once it is about the current generation and has this status."""

        def look() -> dict[str, Any]:
            found = self.kube.get(self.path(kind, name))
            assert found is not None
            present = conditions(found).get(condition)
            assert present is not None, found
            is_it = present["observedGeneration"] == found["metadata"]["generation"]
            assert is_it, present
            assert (present["status"], reason or present["reason"]) == (status, present["reason"]), json.dumps(present)
            return present

        return eventually(look)

    def await_gone(self, kind: str, name: str) -> None:
        eventually(lambda: self.kube.get(self.path(kind, name)) is None)

    def registered(self, call: str, inner: str) -> dict[str, Any]:
        """The manager's objects of a kind, by name."""
        (listed,) = self.manager.ask(call).values()
        return {each[inner]["name"]: each for each in listed}


@contextmanager
def site_in(cluster: Cluster, kube: Kube, folder: Path) -> Iterator[ManagerSite]:
    """A manager, and the rights of an operator that uses one, for as long as the block runs."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip("a cluster that was named may have a manager of its own")
    shipped = [f"--filename={file}" for file in RIGHTS]
    cluster.kubectl("apply", *shipped)
    manager = ManagerProcess(cluster, folder)
    manager.start()
    try:
        eventually(lambda: manager.ask("ListStorages") is not None)
        yield ManagerSite(kube, manager, folder)
    finally:
        manager.kill()
        # Other tests check everything that the operator may do without a manager.
        cluster.kubectl("delete", *shipped)


def engine_token(cluster: Cluster, namespace: str, account: str = "engines") -> str:
    cluster.kubectl("create", "serviceaccount", account, "--namespace", namespace)
    return token_of(cluster, namespace, account, f"--audience={AUDIENCE}")


def write(site: ManagerSite, token: str, instance: str, *names: str) -> None:
    """Writes blocks, as an engine does."""
    keys = [name.encode().hex().upper()[:4] for name in names]  # base64, by its letters
    started = site.manager.ask("StartWriteCache", token, instance_id=instance, block_keys=keys)
    for block in started["blocks"]:
        for spec in block["location"]["specs"]:
            Path(spec["uri"].removeprefix("file://").partition("?")[0]).write_bytes(b"x" * SIZE)
    site.manager.ask("FinishWriteCache", token, instance_id=instance, write_id=started["write_id"], block_keys=keys)


def register(site: ManagerSite, token: str, instance: str, group: str) -> None:
    described = {"name": instance, "group": group, "block_size": 16, "specs": [{"name": "tp0", "size": SIZE}]}
    site.manager.ask("RegisterInstance", token, instance=described)


def accounts(site: ManagerSite) -> dict[str, str]:
    return {each["name"]: each["pool"] for each in site.manager.ask("ListServiceAccounts")["accounts"]}
