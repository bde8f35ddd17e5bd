"""The arbiter's queries, answered for engines without tiers, adapters and encoder."""

from collections.abc import Collection, Iterable, Mapping, Set
from types import MappingProxyType
from typing import Any

from tenantzone_runtime.zones.engine import Encoding
from tenantzone_runtime.zones.model.zone import Zone


class WithoutTiers:
    """A part of such an engine; `tenantzone_runtime.zones.engine.Engine` says what each means."""

    loading: Collection[Any] = ()
    landing: Collection[Any] = ()
    coming: Mapping[Zone, int] = MappingProxyType({})
    adapter_slots = 0

    media_zones: Collection[Zone] = ()
    encoder_room = Encoding(0, 0)

    def adapter(self, work: Any) -> int | None:
        return None

    def next_encoding(self, work: Any) -> Encoding | None:
        return None

    def encodings_in_use(self) -> Iterable[tuple[int, Set[Any]]]:
        return ()

    def can_encode(self, work: Any) -> bool:
        return True
