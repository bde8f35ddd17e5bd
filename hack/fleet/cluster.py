"""The cluster of the story: a control plane of its own, with what the manifests give operator and manager."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.controlplane import Cluster, ControlPlane
from hack.demo.console import wait_until
from hack.demo.workspace import Workspace, show, workspace
from hack.fleet.declared import GROUP, SERVICE_ACCOUNT, STORAGE, TENANTS
from hack.harness.manager_access import AUDIENCE, RIGHTS, token_of
from tenantzone_contract.zone_config.tiers import SHARED_TIER

_SECONDS = 90.0
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FleetCluster:
    """The story's view of the cluster."""

    place: Workspace

    @property
    def cluster(self) -> Cluster:
        return self.place.cluster

    def engine_token(self) -> str:
        """A token of the engines' service account, for the manager alone."""
        return token_of(self.cluster, self.place.namespace, SERVICE_ACCOUNT, f"--audience={AUDIENCE}")

    def show(self, *args: str, stdin: str | None = None) -> None:
        """Run kubectl before the reader's eyes."""
        show(self.cluster, *args, stdin=stdin)

    def await_storage(self, *, ready: bool) -> None:
        """Wait until the KVStorage is ready, or until it says that it is not."""
        what = "ready" if ready else "not ready"
        wait_until(
            lambda: self.is_storage_ready() is ready,
            lambda: f"the KVStorage to be {what}",
            timeout=_SECONDS,
            poll=_POLL_SECONDS,
        )

    def is_storage_ready(self) -> bool:
        """Whether the KVStorage has the condition Ready."""
        conditions = self._status("kvstorage", STORAGE).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def await_held(self, held: Callable[[], dict[str, int]]) -> None:
        """Wait until statuses say of each tenant what the manager counts: they are some seconds old.

        Args:
            held: bytes in the storage by tenant, as the manager counts them now.
        """
        wait_until(
            lambda: held() == self._held_by_group() == self._held_by_zones(),
            lambda: "statuses to have the manager's figures",
            timeout=_SECONDS,
            poll=_POLL_SECONDS,
        )

    def _held_by_group(self) -> dict[str, int]:
        return {row["name"]: row["held"] for row in self._status("kvcachegroup", GROUP).get("zones", ())}

    def _held_by_zones(self) -> dict[str, int]:
        reported = {tenant: self._status("tenantzone", tenant).get("tiers", ()) for tenant in TENANTS}
        return {name: row["held"] for name, rows in reported.items() for row in rows if row["tier"] == SHARED_TIER}

    def _status(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", kind, name, "--output=json").stdout)
        status: dict[str, Any] = found.get("status", {})
        return status


@contextmanager
def fleet_cluster(folder: Path) -> Iterator[FleetCluster]:
    """A control plane while the block lasts."""
    with ControlPlane(folder / "control-plane") as whole, workspace(whole, folder) as place:
        whole.kubectl("apply", *(f"--filename={file}" for file in RIGHTS))
        whole.kubectl("create", "serviceaccount", SERVICE_ACCOUNT, "--namespace", place.namespace)
        yield FleetCluster(place)
