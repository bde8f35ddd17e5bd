"""The base class of the calls of engines and the calls of administrators."""

from tenantzone_manager.core.settings import Instance
from tenantzone_manager.events.writer import Value
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.server.access import Caller


class Calls:
    """The calls of one manager.

    Args:
        manager: the manager that executes the calls.
    """

    def __init__(self, manager: CacheManager) -> None:
        self._manager = manager

    def _types(self) -> list[str]:
        return sorted({storage.type for storage in self._manager.catalog.storages.values()})

    def _note(self, event: str, caller: Caller, instance: Instance | None = None, **fields: Value) -> None:
        whose: dict[str, Value] = (
            {"pool": instance.pool, "group": instance.group, "instance": instance.name} if instance else {}
        )
        self._manager.events.note(event, caller.name, pod=caller.pod, **whose, **fields)
