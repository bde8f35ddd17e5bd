"""Models of TenantZones, ZonePools and pods. A status may be missing, or written by another version of the operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address

from tenantzone_contract.reports.report import DEFAULT_ADMIN_PORT
from tenantzone_contract.zone_config.specs import Body

Share = int | str
"""A share of a pool: a number of blocks, or a percentage such as ``25%``."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in the status of a zone or pool."""

    type: str
    status: str
    reason: str
    message: str
    since: float | None
    """Unix time of the last change of the status; None if unknown."""


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of any kind in TenantZone's API group, with the fields that these kinds have in common."""

    namespace: str
    name: str
    generation: int
    created: float | None
    """Unix time of the object's creation; None if unknown."""
    spec: Body
    status: Body
    annotations: Body

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def age_order(self) -> tuple[float, str]:
        """Sort key that puts the oldest object first. Objects created in the same second are sorted by name."""
        return self.created or 0.0, self.name

    @property
    def observed_generation(self) -> int | None:
        """Latest generation that the operator has processed; None if it has not processed the object yet."""
        return self.status.get("observedGeneration")

    @property
    def conditions(self) -> Sequence[Condition]:
        return [
            Condition(
                type=entry.get("type", ""),
                status=entry.get("status", "Unknown"),
                reason=entry.get("reason", ""),
                message=entry.get("message", ""),
                since=unix_time(entry.get("lastTransitionTime")),
            )
            for entry in self.status.get("conditions", [])
        ]

    def condition(self, kind: str) -> Condition | None:
        return next((entry for entry in self.conditions if entry.type == kind), None)

    def is_(self, kind: str) -> bool:
        """Returns whether the condition of this type has status ``True``."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def ready(self) -> str:
        """Status of the Ready condition; empty if the object has no such condition."""
        found = self.condition("Ready")
        return found.status if found is not None else ""


@dataclass(frozen=True, slots=True)
class Zone(Thing):
    """A TenantZone, with the API's defaults for unset fields."""

    @property
    def pool(self) -> str:
        return str(self.spec.get("pool", ""))

    @property
    def tenant(self) -> str:
        return str(self.spec.get("tenant", self.name))

    @property
    def priority(self) -> int:
        return int(self.spec.get("priority", 0))

    @property
    def reserved(self) -> Share:
        share: Share = self.spec.get("reserved", 0)
        return share

    @property
    def limit(self) -> Share | None:
        return self.spec.get("limit")

    @property
    def tiers(self) -> Sequence[Body]:
        """The entries of ``spec.tiers``, one for each tier that the zone names."""
        return self.spec.get("tiers") or []

    @property
    def engines(self) -> Sequence[Body]:
        """The entries of ``status.engines``, one for each engine."""
        return self.status.get("engines") or []


@dataclass(frozen=True, slots=True)
class Pool(Thing):
    """A ZonePool, with the API's defaults for unset fields."""

    @property
    def admin_port(self) -> int:
        return int(self.spec.get("adminPort", DEFAULT_ADMIN_PORT))

    @property
    def selector(self) -> str:
        """Label selector of the pool's engine pods, as a query string of the API."""
        return label_selector(self.spec.get("selector", {}))

    @property
    def capacity(self) -> int | None:
        return self.status.get("capacityBlocks")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of an engine or of the operator."""

    namespace: str
    name: str
    ready: bool
    trouble: str
    """Reason why the pod is not ready; empty if the pod is ready."""
    annotations: Mapping[str, str]
    ip: str = ""
    """The pod's IP address; empty if none is assigned yet."""
    is_leaving: bool = False
    """Whether the pod is being deleted."""

    @property
    def is_local_process(self) -> bool:
        """Whether the pod is a process on this machine, not a container. Such a pod has a loopback address."""
        try:
            return ip_address(self.ip).is_loopback
        except ValueError:
            return False


def read_zone(body: Body) -> Zone:
    """Read a TenantZone from its JSON in the API."""
    return Zone(*_common(body))


def read_pool(body: Body) -> Pool:
    """Read a ZonePool from its JSON in the API."""
    return Pool(*_common(body))


def read_thing(body: Body) -> Thing:
    """Read an object of any TenantZone kind from its JSON in the API. Cluster-scoped objects get an empty namespace."""
    return Thing(*_common(body))


def read_pod(body: Body) -> Pod:
    """Read a pod from its JSON in the API."""
    metadata, status = body["metadata"], body.get("status", {})
    conditions = {entry["type"]: entry for entry in status.get("conditions") or []}
    ready = conditions.get("Ready", {}).get("status") == "True"
    waiting = [
        state["waiting"].get("reason", "")
        for container in status.get("containerStatuses") or []
        if "waiting" in (state := container.get("state", {}))
    ]
    unscheduled = conditions.get("PodScheduled", {})
    words = [*waiting, unscheduled.get("message", "") if unscheduled.get("status") == "False" else ""]
    trouble = "" if ready else next(filter(None, words), f"phase {status.get('phase', 'Unknown')}")
    annotations = metadata.get("annotations") or {}
    is_leaving = "deletionTimestamp" in metadata
    return Pod(
        metadata["namespace"], metadata["name"], ready, trouble, annotations, status.get("podIP", ""), is_leaving
    )


def label_selector(selector: Body) -> str:
    """Returns a ``LabelSelector`` as a query parameter, such as ``app=vllm,tier notin (canary)``."""
    parts = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    for entry in selector.get("matchExpressions", []):
        key, values = entry["key"], ",".join(entry.get("values", []))
        match entry["operator"]:
            case "In" | "NotIn" as operator:
                parts.append(f"{key} {operator.lower()} ({values})")
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
    return ",".join(parts)


def unix_time(text: str | None) -> float | None:
    """Returns the Unix time of an RFC 3339 timestamp; None if the text is not a timestamp."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def _common(body: Body) -> tuple[str, str, int, float | None, Body, Body, Body]:
    metadata = body["metadata"]
    return (
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("generation", 0),
        unix_time(metadata.get("creationTimestamp")),
        body.get("spec", {}),
        body.get("status", {}),
        metadata.get("annotations") or {},
    )
