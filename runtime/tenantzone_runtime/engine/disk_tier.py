"""The disk tier as vLLM's tiering manager sees it: a secondary tier below CPU memory, with zones."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingSpec,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from tenantzone_contract.config import RuntimeConfig
from tenantzone_runtime.disk.figures import DiskFigures, Receipt
from tenantzone_runtime.disk.tier import Chunks, DiskTier
from tenantzone_runtime.zones.zone import Zone


@dataclass(slots=True)
class _DiskCaller:
    """What the tier keeps on a request."""

    zone: Zone
    keys: dict[OffloadKey, None] = field(default_factory=dict)
    """That it has stored or loaded, in the order of its prompt."""
    is_finished: bool = False


class ZoneDiskTier(SecondaryTierManager):
    """The disk tier of one engine, in which each request stores and finds chunks of its zone only.

    A request that was not bound finds nothing and stores nothing. Nothing here waits: what is there is known in memory,
    and a transfer that is late is reported as failed, its memory being vLLM's again.

    Args:
        offloading_spec: vLLM's.
        primary_kv_view: the CPU memory tier, a row for each chunk.
        tier_type: the name that vLLM's metrics show.
        disk: of chunks as long as a row.
        read_salt_key: has the disk's seals follow the pool's salt key, if it is another one by now.

    Raises:
        ValueError: the disk's chunks have another length.
    """

    medium: ClassVar[Medium | None] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        disk: DiskTier,
        read_salt_key: Callable[[], object] = bool,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type)
        if self.block_size_bytes != disk.chunk_bytes:
            raise ValueError(f"the disk's chunks have {disk.chunk_bytes} bytes, vLLM's {self.block_size_bytes}")
        self.locality = Locality.LOCAL
        self.disk = disk
        self._read_salt_key = read_salt_key
        self._memory = primary_kv_view.cast("B")
        self._bound: dict[str, str] = {}
        self._promised: dict[Zone, set[OffloadKey]] = {}
        """What zones were told of in this step, and have not begun to load."""
        self._loads: set[int] = set()

    def bind(self, request_id: str, tenant: str | None) -> None:
        """Say whose the next new request of this id is, before it comes.

        Args:
            request_id: of a request that the scheduler has bound, whatever the request says of itself.
            tenant: its zone's; None: no zone was declared when it came, and nothing of it goes to the disk.
        """
        if tenant is not None:
            self._bound[request_id] = tenant

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones, with the tier's shares, in parts."""
        return self.disk.apply_in_parts(config)

    def upkeep(self) -> Iterator[None]:
        """Do what time does to zones and their chunks, in parts; to be called several times a second."""
        return self.disk.upkeep_in_parts()

    def forget_all(self) -> Iterator[None]:
        """Find nothing again of what is on the disk, in parts: the pool's salt key is another one."""
        self._read_salt_key()
        return self.disk.renew()

    def condemn(self, req_context: ReqContext, keys: Iterable[OffloadKey]) -> None:
        """Keep nothing that a request has stored under these keys: what it computed may be wrong."""
        caller = req_context.get_state(_DiskCaller)
        if caller is not None:
            self.disk.lose(caller.zone, keys)

    def figures(self) -> DiskFigures:
        """What there is and what was counted, for a report."""
        return self.disk.figures()

    def take_receipts(self) -> list[Receipt]:
        """What became of the files of purges and of zones that went, since the last call."""
        return self.disk.take_receipts()

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
            # Of a prompt, its end goes first.
            self.disk.use(caller.zone, reversed(caller.keys))
            self.disk.tier.request_finished(caller.zone, time.monotonic())

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        caller = req_context.get_state(_DiskCaller)
        if caller is not None:
            self.disk.use(caller.zone, list(keys)[::-1])

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        caller = req_context.get_state(_DiskCaller)
        if caller is None:
            return LookupResult.MISS
        promised = self._promised.setdefault(caller.zone, set())
        if not self.disk.find(caller.zone, key, len(promised - {key})):
            return LookupResult.MISS
        promised.add(key)
        return LookupResult.HIT

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
        assert caller is not None, "who was told to load has a zone"
        self._loads.add(job_metadata.job_id)
        self.disk.load(job_metadata.job_id, caller.zone, self._chunks(job_metadata))
        caller.keys.update(dict.fromkeys(job_metadata.keys))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = []
        for end in self.disk.finished():
            moved = None
            if end.number in self._loads:
                self._loads.discard(end.number)
                moved = [OffloadKey(key) for key in end.moved]
            results.append(JobResult(end.number, end.is_whole, moved or None, end.seconds, end.moved_bytes))
        return results

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        # What was promised is being loaded by now, or vLLM had no room for it.
        self._promised.clear()

    def drain_jobs(self) -> None:
        """End all jobs at once: vLLM's memory is touched no more, and no disk is waited for."""
        self.disk.give_up_jobs()

    def shutdown(self) -> None:
        self.disk.stop()
        self._memory.release()

    def _chunks(self, job: TransferJob) -> Chunks:
        size = self.block_size_bytes
        starts = [int(chunk_id) * size for chunk_id in job.chunk_ids]
        return [(key, self._memory[start : start + size]) for key, start in zip(job.keys, starts, strict=True)]
