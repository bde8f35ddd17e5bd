"""Common code of the tiers below CPU memory, which are secondary tiers of vLLM's tiering manager."""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol

from vllm.v1.kv_offload.base import (
    Locality,
    Medium,
    OffloadingSpec,
    OffloadKey,
    ReqContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.transfers import JobEnd


class TierBelow(Protocol):
    """A tier that does not depend on vLLM."""

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk in memory, in bytes."""

    def apply(self, config: RuntimeConfig) -> None:
        """Enforce a new config of the engine's zones."""

    def upkeep(self) -> None:
        """Do periodic work; called several times a second."""

    def renew(self) -> None:
        """Make chunks unfindable that were sealed with a key other than the current key."""

    def finished(self) -> list[JobEnd]:
        """Returns the jobs that have ended since the last call."""

    def give_up_jobs(self) -> None:
        """End all jobs immediately."""

    def take_receipts(self) -> list[Receipt]:
        """Returns the receipts of completed purges and removed zones since the last call."""

    def stop(self) -> None:
        """Begin no new work."""


class ZoneSecondaryTier(SecondaryTierManager):
    """A tier in which each request stores and finds only chunks of its zone.

    An unbound request finds nothing and stores nothing. No method blocks: a transfer that takes too long is reported as
    failed, and then vLLM may reuse its memory.

    Args:
        offloading_spec: vLLM's spec.
        primary_kv_view: the memory of the CPU memory tier, one row per chunk.
        tier_type: the tier's name in vLLM's metrics.
        locality: the locality of the storage.
        below: the tier's implementation. Its chunks must be as long as a row.

    Raises:
        ValueError: the tier's chunks have a different length.
    """

    medium: ClassVar[Medium | None] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        locality: Locality,
        below: TierBelow,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type)
        if self.block_size_bytes != below.chunk_bytes:
            raise ValueError(
                f"the {tier_type} tier's chunks have {below.chunk_bytes} bytes, but vLLM's have {self.block_size_bytes}"
            )
        self.locality = locality
        self._below = below
        self._memory = primary_kv_view.cast("B")
        self._bound: dict[str, str] = {}
        self._loads: set[int] = set()

    def bind(self, request_id: str, tenant: str | None) -> None:
        """Set the tenant of a request, before vLLM calls ``on_new_request`` for it.

        Args:
            request_id: the id of a request that the scheduler has bound. Tenant claims in the request are ignored.
            tenant: the tenant of its zone, or None if no zone was declared when it arrived. In that case, the request
                does not use the tier.
        """
        if tenant is not None:
            self._bound[request_id] = tenant

    def know_prompt(self, req_context: ReqContext, keys: Sequence[OffloadKey]) -> None:
        """Set the list of keys of a new request's prompt, in order. The list is filled before the first look-up."""

    def is_waiting(self, req_context: ReqContext) -> bool:
        """Returns whether a look-up of the request waits for an answer from outside the engine."""
        return False

    def condemn(self, req_context: ReqContext, keys: Iterable[OffloadKey]) -> None:
        """Remove chunks that a request has stored under these keys, because they may be wrong."""
        raise NotImplementedError

    # Outside the steps, in parts between which steps may run

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones and of their shares of the tier."""
        self._below.apply(config)
        yield

    def upkeep(self) -> Iterator[None]:
        """Apply timeouts to zones and their chunks; called several times a second."""
        self._below.upkeep()
        yield

    def forget_all(self) -> Iterator[None]:
        """Make all stored chunks unfindable, because the pool's salt key has changed."""
        self._below.renew()
        yield

    def take_receipts(self) -> list[Receipt]:
        """Returns the receipts of completed purges and removed zones since the last call."""
        return self._below.take_receipts()

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = []
        for end in self._below.finished():
            moved = None
            if end.number in self._loads:
                self._loads.discard(end.number)
                moved = [OffloadKey(key) for key in end.moved]
            results.append(JobResult(end.number, end.is_whole, moved or None, end.seconds, end.moved_bytes))
        return results

    def drain_jobs(self) -> None:
        """End all jobs without blocking. Afterwards, vLLM's memory is not accessed any more."""
        self._below.give_up_jobs()

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """Called when every promised chunk is being loaded, or vLLM had no room for it."""

    def shutdown(self) -> None:
        self._below.stop()
        self._memory.release()

    def _rows(self, job: TransferJob) -> list[memoryview]:
        """Returns the memory of a job's chunks."""
        size = self.block_size_bytes
        starts = [int(chunk_id) * size for chunk_id in job.chunk_ids]
        return [self._memory[start : start + size] for start in starts]
