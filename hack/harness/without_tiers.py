"""What the arbiter is told by engines that have neither tiers nor adapters: nothing is loaded, nothing is coming."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from tenantzone_runtime.zones.zone import Zone


class WithoutTiers:
    """A part of such an engine; `tenantzone_runtime.zones.engine.Engine` says what each means."""

    loading: Collection[Any] = ()
    landing: Collection[Any] = ()
    coming: Mapping[Zone, int] = MappingProxyType({})
    adapter_slots = 0

    def adapter(self, work: Any) -> int | None:
        return None
