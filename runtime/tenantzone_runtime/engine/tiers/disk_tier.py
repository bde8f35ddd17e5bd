"""The disk tier with zones, as a secondary tier of vLLM's tiering manager."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    OffloadingSpec,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.base import TransferJob

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.disk.figures import DiskFigures
from tenantzone_runtime.disk.tier import Chunks, DiskTier
from tenantzone_runtime.engine.tiers.secondary_tier import ZoneSecondaryTier
from tenantzone_runtime.zones.model.zone import Zone


@dataclass(slots=True)
class _DiskCaller:
    """The tier's state for one request."""

    zone: Zone
    keys: dict[OffloadKey, None] = field(default_factory=dict)
    """Keys that the request has stored or loaded, in prompt order."""
    prompt: Sequence[OffloadKey] = ()
    """Keys of the chunks of the first KV cache group, from the beginning of the prompt."""
    is_finished: bool = False


class ZoneDiskTier(ZoneSecondaryTier):
    """The disk tier of one engine. Its contents are indexed in memory, so that no look-up reads the disk.

    Args:
        offloading_spec: vLLM's spec.
        primary_kv_view: the memory of the CPU memory tier, one row per chunk.
        tier_type: the tier's name in vLLM's metrics.
        disk: the store. Its chunks must be as long as a row.
        read_salt_key: reads the pool's salt key, which may have changed and which the disk's seals depend on.

    Raises:
        ValueError: the disk's chunks have a different length.
    """

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        disk: DiskTier,
        read_salt_key: Callable[[], object] = bool,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, Locality.LOCAL, disk)
        self.disk = disk
        self._read_salt_key = read_salt_key
        self._promised: dict[Zone, set[OffloadKey]] = {}
        """Keys, by zone, that were reported as hits in this step and whose load has not begun."""
        self.moves_whole_hits = False
        """Whether the caller loads and stores whole hits, instead of looking up chunk by chunk."""

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        return self.disk.apply_in_parts(config)

    def upkeep(self) -> Iterator[None]:
        return self.disk.upkeep_in_parts()

    def forget_all(self) -> Iterator[None]:
        self._read_salt_key()
        return self.disk.renew_in_parts()

    def condemn(self, req_context: ReqContext, keys: Iterable[OffloadKey]) -> None:
        caller = req_context.get_state(_DiskCaller)
        if caller is not None:
            self.disk.lose(caller.zone, keys)

    def figures(self) -> DiskFigures:
        """Returns the tier's current contents and counters, for a report."""
        return self.disk.figures()

    # Requests

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        tenant = self._bound.pop(req_context.req_id, None)
        now = time.monotonic()
        zone = None if tenant is None else self.disk.tier.zone_for(tenant, now)
        if zone is not None:
            req_context.set_state(_DiskCaller(zone))
            self.disk.tier.request_arrived(zone, now)
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        caller = req_context.get_state(_DiskCaller)
        if caller is not None and not caller.is_finished:
            caller.is_finished = True
            # In reverse order, so that the end of a prompt is evicted first.
            self.disk.use(caller.zone, reversed(caller.keys))
            self.disk.tier.request_finished(caller.zone, time.monotonic())

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        caller = req_context.get_state(_DiskCaller)
        if caller is not None:
            self.disk.use(caller.zone, list(keys)[::-1])

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        caller = req_context.get_state(_DiskCaller)
        if caller is None or self.moves_whole_hits:
            return LookupResult.MISS
        promised = self._promised.setdefault(caller.zone, set())
        if not self.disk.find(caller.zone, key, len(promised - {key})):
            return LookupResult.MISS
        promised.add(key)
        return LookupResult.HIT

    # Whole hits

    def know_prompt(self, req_context: ReqContext, keys: Sequence[OffloadKey]) -> None:
        caller = req_context.get_state(_DiskCaller)
        if caller is not None:
            caller.prompt = keys

    def holds(self, key: OffloadKey, req_context: ReqContext) -> bool:
        """Returns whether the tier has a chunk for the request's zone."""
        caller = req_context.get_state(_DiskCaller)
        return caller is not None and self.disk.holds(caller.zone, key)

    @property
    def is_readable(self) -> bool:
        """Whether stored chunks may be loaded now."""
        return self.disk.is_readable

    def may_load(self, keys: Sequence[OffloadKey], req_context: ReqContext) -> bool:
        """Returns whether all the chunks may be loaded now."""
        caller = req_context.get_state(_DiskCaller)
        return caller is not None and self.disk.may_load(
            caller.zone, len(keys), len(self._promised.get(caller.zone, ()))
        )

    def promise(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        """Record that these chunks will be loaded at the end of this step."""
        caller = req_context.get_state(_DiskCaller)
        if caller is not None:
            self._promised.setdefault(caller.zone, set()).update(keys)
            self.disk.try_reading()

    def lacks(self, hit: Iterable[OffloadKey], req_context: ReqContext) -> list[OffloadKey]:
        """Returns the keys of a hit that the request's zone lacks."""
        caller = req_context.get_state(_DiskCaller)
        return [] if caller is None else [OffloadKey(key) for key in self.disk.lacks(caller.zone, hit)]

    def store_hit(self, job: TransferJob, hit: Sequence[OffloadKey]) -> None:
        """Begin to store the missing chunks of a hit. Stores nothing if not all of them fit."""
        caller = job.req_context.get_state(_DiskCaller)
        if caller is None:
            self.disk.end_at_once(job.job_id)
        else:
            self.disk.store_hit(job.job_id, caller.zone, self._chunks(job), hit, caller.prompt)

    def use(self, hit: Sequence[OffloadKey], req_context: ReqContext) -> None:
        """Record that a hit was used, such that its end is evicted first."""
        caller = req_context.get_state(_DiskCaller)
        if caller is not None:
            self.disk.use(caller.zone, reversed(hit))

    # Transfers

    def submit_store(self, job_metadata: TransferJob) -> None:
        caller = job_metadata.req_context.get_state(_DiskCaller)
        if caller is None:
            self.disk.end_at_once(job_metadata.job_id)
            return
        self.disk.store(job_metadata.job_id, caller.zone, self._chunks(job_metadata), caller.keys)
        caller.keys.update(dict.fromkeys(job_metadata.keys))

    def submit_load(self, job_metadata: TransferJob) -> None:
        caller = job_metadata.req_context.get_state(_DiskCaller)
        assert caller is not None, "a caller that loads has a zone"
        self._loads.add(job_metadata.job_id)
        chunks, is_tried = self._chunks(job_metadata), self.moves_whole_hits
        self.disk.load(job_metadata.job_id, caller.zone, chunks, is_tried=is_tried)
        if not self.moves_whole_hits:
            caller.keys.update(dict.fromkeys(job_metadata.keys))

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        # By now, every promised chunk is being loaded, or vLLM had no room for it.
        self._promised.clear()

    def _chunks(self, job: TransferJob) -> Chunks:
        return list(zip(job.keys, self._rows(job), strict=True))
