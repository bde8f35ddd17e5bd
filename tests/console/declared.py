"""KVStorages and KVCacheGroups as stored in the API server, with statuses of the operator."""

from typing import Any

from tenantzone_operator.cache_manager.declared import read_group, read_storage
from tenantzone_operator.console.storages import Stored
from tests.operator.objects import body

GIB = 2**30


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason or kind, "message": message}


def storage(name: str, *, health: dict[str, str] | None = None, held: int = 0, **spec: Any) -> dict[str, Any]:
    """A KVStorage of the type FileSystem, ready if it is healthy."""
    healthy = health or condition("Healthy")
    ready = {**healthy, "type": "Ready"}
    status = {"conditions": [healthy, ready], "held": held, "place": f"/mnt/{name}"}
    files = {"type": "FileSystem", "fileSystem": {"path": f"/mnt/{name}"}}
    return body(name, metadata={"namespace": ""}, spec={**files, **spec}, status=status)


def group(name: str, *, ready: dict[str, str] | None = None, reported: Any = None, **spec: Any) -> dict[str, Any]:
    """A KVCacheGroup with the figures ``reported`` in its status."""
    status = {"conditions": [ready or condition("Ready")], **(reported or {})}
    return body(name, metadata={"namespace": ""}, spec={"storages": ["disk"], **spec}, status=status)


class Cluster:
    """The objects that a test declares, as the console lists them."""

    def __init__(self) -> None:
        self.storages: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.failure: Exception | None = None
        self.listings = 0

    def declare(self, *, storages: Any = (), groups: Any = ()) -> None:
        """Declares these objects, and replaces those of the same name."""
        # New dicts: the console's thread may be iterating over the old ones.
        self.storages = self.storages | {each["metadata"]["name"]: each for each in storages}
        self.groups = self.groups | {each["metadata"]["name"]: each for each in groups}

    async def list_stored(self) -> Stored:
        self.listings += 1
        if self.failure is not None:
            raise self.failure
        return Stored(tuple(map(read_storage, self.storages.values())), tuple(map(read_group, self.groups.values())))
