"""A KVCacheGroup shared by two zones of the engines with tiers, sent to their manager as the operator does it."""

from collections import Counter

from hack.harness.cache_manager import CacheManagerProcess
from tenantzone_contract.cache.cache_names import owner_of
from tenantzone_manager.events.reading import Selection, Tally, select
from tenantzone_operator.cache_manager.declared import read_group
from tenantzone_operator.cache_manager.members import members, with_members, zone_rows
from tenantzone_operator.kube.resources import read_pool, read_zone
from tests.operator.objects import body


class SharedGroup:
    """The group ``team``.

    Args:
        chunk: the bytes of one chunk.
        limit: chunks that both zones may store together.
        floor: chunks of the limit that the first zone is promised.
        watermark: a share of the limit, in the notation of a KVCacheGroup.
        zones: the names of both zones, which are also their tenants.
    """

    def __init__(self, chunk: int, *, limit: int, floor: int, watermark: str, zones: tuple[str, str]) -> None:
        in_test = {"namespace": "test"}
        promised = {"type": "FileSystem", "reserved": floor * chunk}
        first, second = zones
        spec = {
            "storages": ["files"],
            "zones": [{"name": first, "types": [promised], **in_test}, {"name": second, **in_test}],
            "quota": {"limit": limit * chunk, "watermark": watermark},
        }
        self._declared = read_group(body("team", metadata={"namespace": ""}, spec=spec))
        selector = {"matchLabels": {"app": "vllm"}}
        pool = read_pool(body("pool", metadata=in_test, spec={"selector": selector}))
        declared = [read_zone(body(zone, metadata=in_test, spec={"pool": "pool"})) for zone in zones]
        self._shared = members([self._declared], [pool], declared, {})[self._declared.meta.uid]

    def send_to(self, manager: CacheManagerProcess) -> None:
        """Sends the group to the manager, as the operator does, once, before either zone has an instance."""
        manager.ask("PutInstanceGroup", group=with_members(self._declared, self._shared))

    def held(self, manager: CacheManagerProcess) -> Counter[str]:
        """Bytes that each zone stores, by the group's status; a zone that stores none has no row."""
        rows = zone_rows(self._declared, self._shared, _instances(manager))
        return Counter({row["name"]: row["held"] for row in rows})

    def evicted(self, manager: CacheManagerProcess) -> Counter[str]:
        """Each tenant's evicted blocks in the group, as the manager has recorded them."""
        events = select([manager.events], Selection(group=self._declared.meta.name), Tally())
        found = Counter[str]()
        for event in events:
            if event.event == "evict":
                found[owner_of(event.instance)] += len(event.keys)
        return found


def _instances(manager: CacheManagerProcess) -> list[dict]:
    return manager.ask("ListInstances")["instances"]
