"""How a request uses the disk tier. An index in memory lists the tier's chunks, so that no look-up reads the disk."""

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Self

from vllm.v1.kv_offload.base import Locality, LookupResult, OffloadKey, ReqContext
from vllm.v1.kv_offload.tiering.base import TransferJob

from tenantzone_runtime.disk.tier import DiskTier
from tenantzone_runtime.engine.tiers.secondary_tier import TierRequest, ZoneSecondaryTier
from tenantzone_runtime.zones.model.zone import Zone


class DiskRequest(TierRequest[DiskTier]):
    """One request's use of the disk tier."""

    tier_type = "disk"
    locality = Locality.LOCAL

    def __init__(self, below: DiskTier, zone: Zone) -> None:
        super().__init__(below, zone)
        self.zone = zone
        self._keys: dict[OffloadKey, None] = {}
        """Keys that the request has stored or loaded, in prompt order."""
        self._prompt: Sequence[OffloadKey] = ()
        """Keys of the prompt's chunks in the first KV cache group, in order."""

    @classmethod
    def begin(cls, below: DiskTier, tenant: str) -> Self | None:
        now = time.monotonic()
        zone = below.tier.zone_for(tenant, now)
        if zone is None:
            return None
        below.tier.request_arrived(zone, now)
        return cls(below, zone)

    def know_prompt(self, keys: Sequence[OffloadKey], context: ReqContext) -> None:
        self._prompt = keys

    def end(self) -> None:
        self.touch(self._keys)
        self.below.tier.request_finished(self.zone, time.monotonic())

    def touch(self, keys: Collection[OffloadKey]) -> None:
        self.below.use(self.zone, reversed(list(keys)))

    def lose(self, keys: Iterable[OffloadKey]) -> None:
        self.below.lose(self.zone, keys)

    def find(self, key: OffloadKey, promised: int) -> LookupResult:
        return LookupResult.HIT if self.below.find(self.zone, key, promised) else LookupResult.MISS

    def store(self, job: TransferJob, rows: Sequence[memoryview]) -> None:
        self.below.store(job.job_id, self.zone, list(zip(job.keys, rows, strict=True)), self._keys)
        self._keys.update(dict.fromkeys(job.keys))

    def load(self, job: TransferJob, rows: Sequence[memoryview], *, is_whole_hit: bool) -> None:
        self.below.load(job.job_id, self.zone, list(zip(job.keys, rows, strict=True)), is_tried=is_whole_hit)
        if not is_whole_hit:
            self._keys.update(dict.fromkeys(job.keys))

    def holds(self, key: OffloadKey) -> bool:
        """Returns whether the disk has a chunk of the request's zone with this key."""
        return self.below.holds(self.zone, key)

    def may_load(self, keys: Sequence[OffloadKey], promised: int) -> bool:
        return self.below.may_load(self.zone, len(keys), promised)

    def promise(self, keys: Sequence[OffloadKey]) -> None:
        self.below.try_reading()

    def lacks(self, hit: Sequence[OffloadKey]) -> list[OffloadKey]:
        return [OffloadKey(key) for key in self.below.lacks(self.zone, hit)]

    def store_hit(self, job: TransferJob, rows: Sequence[memoryview], hit: Sequence[OffloadKey]) -> None:
        self.below.store_hit(job.job_id, self.zone, list(zip(job.keys, rows, strict=True)), hit, self._prompt)


ZoneDiskTier = ZoneSecondaryTier[DiskTier, DiskRequest]
"""The type of the disk tier."""
