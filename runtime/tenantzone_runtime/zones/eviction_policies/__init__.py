"""Eviction policies: orders in which a zone evicts its own cached blocks. To add one, add a module and a line here."""

from collections.abc import Mapping
from typing import Final

from tenantzone_contract.zone_config.config import EvictionPolicy
from tenantzone_runtime.zones.eviction_policies.clock import Clock
from tenantzone_runtime.zones.eviction_policies.lfu import LeastFrequentlyUsed
from tenantzone_runtime.zones.eviction_policies.lru import LeastRecentlyUsed
from tenantzone_runtime.zones.eviction_policies.order import EvictionOrder

EVICTION_POLICIES: Final[Mapping[EvictionPolicy, type[EvictionOrder]]] = {
    "LRU": LeastRecentlyUsed,
    "Clock": Clock,
    "LFU": LeastFrequentlyUsed,
}
"""The class of each eviction policy, by its name in a zone's ``evictionPolicy``."""
