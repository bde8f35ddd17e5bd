"""What tiers below CPU memory have in common, as vLLM's tiering manager sees them."""

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

from tenantzone_contract.config import RuntimeConfig
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.transfers import JobEnd


class TierBelow(Protocol):
    """A tier that knows no vLLM."""

    @property
    def chunk_bytes(self) -> int:
        """Of a chunk in memory."""

    def apply(self, config: RuntimeConfig) -> None:
        """Enforce a new config of the engine's zones."""

    def upkeep(self) -> None:
        """Do what time does; to be called several times a second."""

    def renew(self) -> None:
        """Find nothing more of what was sealed by another key than the one in force."""

    def finished(self) -> list[JobEnd]:
        """The jobs that have ended since the last call."""

    def give_up_jobs(self) -> None:
        """End all jobs at once."""

    def take_receipts(self) -> list[Receipt]:
        """What became of what purges named, and of zones that went."""

    def stop(self) -> None:
        """Begin nothing more."""


class ZoneSecondaryTier(SecondaryTierManager):
    """A tier in which each request stores and finds chunks of its zone only.

    A request that was not bound finds nothing and stores nothing. Nothing here waits: a transfer that is late is
    reported as failed, its memory being vLLM's again.

    Args:
        offloading_spec: vLLM's.
        primary_kv_view: the CPU memory tier, a row for each chunk.
        tier_type: the name that vLLM's metrics show.
        locality: whose storage it is.
        below: of chunks as long as a row.

    Raises:
        ValueError: its chunks have another length.
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
                f"the {tier_type} tier's chunks have {below.chunk_bytes} bytes, vLLM's {self.block_size_bytes}"
            )
        self.locality = locality
        self._below = below
        self._memory = primary_kv_view.cast("B")
        self._bound: dict[str, str] = {}
        self._loads: set[int] = set()

    def bind(self, request_id: str, tenant: str | None) -> None:
        """Say whose the next new request of this id is, before it comes.

        Args:
            request_id: of a request that the scheduler has bound, whatever the request says of itself.
            tenant: its zone's; None: no zone was declared when it came, and nothing of it goes here.
        """
        if tenant is not None:
            self._bound[request_id] = tenant

    def know_prompt(self, req_context: ReqContext, keys: Sequence[OffloadKey]) -> None:
        """Know the keys of a new request's chunks from the beginning; the list is filled before the first look-up."""

    def is_waiting(self, req_context: ReqContext) -> bool:
        """Whether a look-up of the request waits for an answer from elsewhere."""
        return False

    def condemn(self, req_context: ReqContext, keys: Iterable[OffloadKey]) -> None:
        """Keep nothing that a request has stored under these keys: what it computed may be wrong."""
        raise NotImplementedError

    # Beside the steps, in parts, between which there may be steps

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones, with the tier's shares."""
        self._below.apply(config)
        yield

    def upkeep(self) -> Iterator[None]:
        """Do what time does to zones and their chunks; to be called several times a second."""
        self._below.upkeep()
        yield

    def forget_all(self) -> Iterator[None]:
        """Find nothing again of what is stored: the pool's salt key is another one."""
        self._below.renew()
        yield

    def take_receipts(self) -> list[Receipt]:
        """What became of what purges named and of zones that went, since the last call."""
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
        """End all jobs at once: vLLM's memory is touched no more, and nothing is waited for."""
        self._below.give_up_jobs()

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """What was promised in this step is being loaded by now, or vLLM had no room for it."""

    def shutdown(self) -> None:
        self._below.stop()
        self._memory.release()

    def _rows(self, job: TransferJob) -> list[memoryview]:
        """The memory of a job's chunks."""
        size = self.block_size_bytes
        starts = [int(chunk_id) * size for chunk_id in job.chunk_ids]
        return [self._memory[start : start + size] for start in starts]
