"""Eviction policies: the order in which a zone evicts its own cached blocks. A policy is a module and a line here."""

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
"""Eviction policies by their name in a zone's ``evictionPolicy``."""
