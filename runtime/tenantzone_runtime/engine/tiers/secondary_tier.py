"""A tier with zones below CPU memory, implemented as a secondary tier of vLLM's tiering manager.

The modules ``disk_tier`` and ``shared_tier`` define how a request uses each kind of tier.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

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
from vllm.v1.kv_offload.tiering.base import JobResult, ParentManager, SecondaryTierManager, TransferJob

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.disk.transfers import JobEnd
from tenantzone_runtime.zones.model.zone import Zone


class TierBelow(Protocol):
    """The interface of a tier's implementation. Implementations do not depend on vLLM."""

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk in memory, in bytes."""

    def apply_in_parts(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones, in parts between which steps may run."""

    def upkeep_in_parts(self) -> Iterator[None]:
        """Do periodic work in parts. Called several times a second."""

    def renew_in_parts(self) -> Iterator[None]:
        """Make chunks that were sealed with an earlier key unfindable, in parts between which steps may run."""

    def end_at_once(self, number: int) -> None:
        """Report a job with this number as ended without any transfer."""

    def finished(self) -> list[JobEnd]:
        """Returns the jobs that have ended since the last call."""

    def give_up_jobs(self) -> None:
        """End all jobs immediately, even if transfers are incomplete."""

    def stop(self) -> None:
        """Stop beginning new work."""


_Below = TypeVar("_Below", bound=TierBelow)


class TierRequest(ABC, Generic[_Below]):
    """Lets one request use a tier on behalf of its zone. Each kind of tier has a subclass.

    Args:
        below: the tier's implementation.
        owner: the zone, or the tenant of the zone.
    """

    tier_type: ClassVar[str]
    """The tier's name in vLLM's metrics."""
    locality: ClassVar[Locality]
    """The locality of the tier's storage."""

    def __init__(self, below: _Below, owner: Zone | str) -> None:
        self.below = below
        self.owner = owner
        self.is_finished = False

    @classmethod
    @abstractmethod
    def begin(cls, below: _Below, tenant: str) -> Self | None:
        """Returns the use of a tier by a new request of a tenant, or None if the tenant has no zone in the tier."""

    def know_prompt(self, keys: Sequence[OffloadKey], context: ReqContext) -> None:
        """Set the list of keys of the prompt, in order. vLLM fills the list before the first look-up."""

    def end(self) -> None:
        """Record that the request has ended."""

    def touch(self, keys: Collection[OffloadKey]) -> None:
        """Record that chunks, in the order of the prompt, were used. The last of the chunks is evicted first."""

    @abstractmethod
    def lose(self, keys: Iterable[OffloadKey]) -> None:
        """Remove chunks that the request has stored, because they may be wrong."""

    @abstractmethod
    def find(self, key: OffloadKey, promised: int) -> LookupResult:
        """Look up a chunk. Returns a hit only if the zone may load it in addition to ``promised`` earlier hits."""

    @property
    def is_waiting(self) -> bool:
        """Whether a look-up waits for an answer from outside the engine."""
        return False

    @abstractmethod
    def store(self, job: TransferJob, rows: Sequence[memoryview]) -> None:
        """Begin to store the chunks of a job. ``rows`` contains the bytes of each chunk."""

    @abstractmethod
    def load(self, job: TransferJob, rows: Sequence[memoryview], *, is_whole_hit: bool) -> None:
        """Begin to load into ``rows`` chunks that were reported to the request as single hits or as a whole hit."""

    # Whole hits

    @abstractmethod
    def may_load(self, keys: Sequence[OffloadKey], promised: int) -> bool:
        """Returns whether all the chunks may be loaded now, in addition to ``promised`` chunks."""

    @abstractmethod
    def promise(self, keys: Sequence[OffloadKey]) -> None:
        """Record that these chunks will be loaded at the end of this step."""

    @abstractmethod
    def lacks(self, hit: Sequence[OffloadKey]) -> list[OffloadKey]:
        """Returns the keys of a hit's missing chunks, in the hit's order. Empty if the zone may not store them."""

    @abstractmethod
    def store_hit(self, job: TransferJob, rows: Sequence[memoryview], hit: Sequence[OffloadKey]) -> None:
        """Begin to store the missing chunks of a hit. Stores nothing if not all of them fit."""

    # Chunks that the tier requests from CPU memory

    @classmethod
    def has_gaps(cls, below: _Below) -> bool:
        """Returns whether the tier requests chunks from CPU memory, because later chunks are useless without them."""
        return False

    @classmethod
    def take_gaps(cls, below: _Below) -> list[tuple[Sequence[OffloadKey], ReqContext]]:
        """Returns the keys of the chunks requested since the last call, with the contexts of their requests."""
        return []


_Request = TypeVar("_Request", bound=TierRequest[Any])


class ZoneSecondaryTier(SecondaryTierManager, Generic[_Below, _Request]):
    """A tier in which each request stores and finds only chunks of its zone.

    A request without a zone finds nothing and stores nothing. No method blocks. A transfer that takes too long is
    reported as failed, after which vLLM may reuse the memory of the transfer.

    Args:
        offloading_spec: vLLM's spec.
        primary_kv_view: the memory of the CPU memory tier, one row per chunk.
        kind: the class of a request's use of the tier.
        below: the tier's implementation. Its chunks must be as long as a row.
        read_salt_key: reads the pool's salt key again. The tier's seals depend on the salt key.

    Raises:
        ValueError: the tier's chunks are longer or shorter than a row.
    """

    medium: ClassVar[Medium | None] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        kind: type[_Request],
        below: _Below,
        read_salt_key: Callable[[], object] = bool,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, kind.tier_type)
        if self.block_size_bytes != below.chunk_bytes:
            sizes = f"{below.chunk_bytes} bytes, but vLLM's have {self.block_size_bytes}"
            raise ValueError(f"the {self.tier_type} tier's chunks have {sizes}")
        self.locality = kind.locality
        self.below = below
        self.moves_whole_hits = False
        """Whether the caller loads and stores whole hits instead of single chunks."""
        self._kind = kind
        self._read_salt_key = read_salt_key
        self._memory = primary_kv_view.cast("B")
        self._bound: dict[str, str] = {}
        self._loads: set[int] = set()
        self._promised: dict[Zone | str, set[OffloadKey]] = {}
        """Keys that were reported as hits in this step and are not being loaded yet, by owner."""

    def bind(self, request_id: str, tenant: str | None) -> None:
        """Set the tenant of a request, before vLLM calls ``on_new_request`` for it.

        Args:
            request_id: the id of a request that the scheduler has bound to a zone by its seal.
            tenant: the tenant of the zone, or None if no zone was declared when the request arrived. In that case, the
                request does not use the tier.
        """
        if tenant is not None:
            self._bound[request_id] = tenant

    def request(self, req_context: ReqContext) -> _Request | None:
        """Returns a request's use of the tier, or None if the request does not use the tier."""
        request: _Request | None = req_context.get_state(self._kind)
        return request

    # Outside the steps, in parts between which steps may run

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones and of their shares of the tier."""
        return self.below.apply_in_parts(config)

    def upkeep(self) -> Iterator[None]:
        """Apply timeouts to zones and their chunks. Called several times a second."""
        return self.below.upkeep_in_parts()

    def forget_all(self) -> Iterator[None]:
        """Make all stored chunks unfindable. Called after the pool's salt key has changed."""
        self._read_salt_key()
        return self.below.renew_in_parts()

    # Requests

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        tenant = self._bound.pop(req_context.req_id, None)
        request = None if tenant is None else self._kind.begin(self.below, tenant)
        if request is not None:
            req_context.set_state(request)
        return RequestOffloadingContext()

    def know_prompt(self, req_context: ReqContext, keys: Sequence[OffloadKey]) -> None:
        """Set the list of keys of a new request's prompt, in order. vLLM fills the list before the first look-up."""
        if (request := self.request(req_context)) is not None:
            request.know_prompt(keys, req_context)

    def on_request_finished(self, req_context: ReqContext) -> None:
        request = self.request(req_context)
        if request is not None and not request.is_finished:
            request.is_finished = True
            request.end()

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        if (request := self.request(req_context)) is not None:
            request.touch(keys)

    def condemn(self, req_context: ReqContext, keys: Iterable[OffloadKey]) -> None:
        """Remove chunks that a request has stored under these keys, because they may be wrong."""
        if (request := self.request(req_context)) is not None:
            request.lose(keys)

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        request = self.request(req_context)
        if request is None or self.moves_whole_hits:
            return LookupResult.MISS
        promised = self._promised.setdefault(request.owner, set())
        result: LookupResult = request.find(key, len(promised) - (key in promised))
        if result is LookupResult.HIT:
            promised.add(key)
        return result

    def is_waiting(self, req_context: ReqContext) -> bool:
        """Returns whether a look-up of the request waits for an answer from outside the engine."""
        request = self.request(req_context)
        return request is not None and request.is_waiting

    # Whole hits

    def may_load(self, keys: Sequence[OffloadKey], req_context: ReqContext) -> bool:
        """Returns whether all the chunks may be loaded now."""
        request = self.request(req_context)
        return request is not None and request.may_load(keys, len(self._promised.get(request.owner, ())))

    def promise(self, keys: Sequence[OffloadKey], req_context: ReqContext) -> None:
        """Record that these chunks will be loaded at the end of this step."""
        if (request := self.request(req_context)) is not None:
            self._promised.setdefault(request.owner, set()).update(keys)
            request.promise(keys)

    def lacks(self, hit: Sequence[OffloadKey], req_context: ReqContext) -> list[OffloadKey]:
        """Returns the keys of a hit's missing chunks, in the hit's order. Empty if the zone may not store them."""
        request = self.request(req_context)
        return [] if request is None else request.lacks(hit)

    def store_hit(self, job: TransferJob, hit: Sequence[OffloadKey]) -> None:
        """Begin to store the missing chunks of a hit. Stores nothing if not all of them fit."""
        request = self.request(job.req_context)
        if request is None:
            self.below.end_at_once(job.job_id)
        else:
            request.store_hit(job, self._rows(job), hit)

    # Transfers

    def submit_store(self, job_metadata: TransferJob) -> None:
        request = self.request(job_metadata.req_context)
        if request is None:
            self.below.end_at_once(job_metadata.job_id)
        else:
            request.store(job_metadata, self._rows(job_metadata))

    def submit_load(self, job_metadata: TransferJob) -> None:
        request = self.request(job_metadata.req_context)
        assert request is not None, "a request that loads has a zone"
        self._loads.add(job_metadata.job_id)
        request.load(job_metadata, self._rows(job_metadata), is_whole_hit=self.moves_whole_hits)

    def serve_external_requests(self, parent: ParentManager) -> None:
        for keys, context in self._kind.take_gaps(self.below):
            self.submit_store(parent.create_store_job(keys, context))

    def has_pending_work(self) -> bool:
        return self._kind.has_gaps(self.below)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = []
        for end in self.below.finished():
            moved = None
            if end.number in self._loads:
                self._loads.discard(end.number)
                moved = [OffloadKey(key) for key in end.moved]
            results.append(JobResult(end.number, end.is_whole, moved or None, end.seconds, end.moved_bytes))
        return results

    def drain_jobs(self) -> None:
        """End all jobs without blocking. Afterwards, the tier does not access vLLM's memory any more."""
        self.below.give_up_jobs()

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        # By now, vLLM has begun to load each promised chunk, or had no room for it and will not load it.
        self._promised.clear()

    def shutdown(self) -> None:
        self.below.stop()
        self._memory.release()

    def _rows(self, job: TransferJob) -> list[memoryview]:
        """Returns the CPU memory of each chunk of a job."""
        size = self.block_size_bytes
        starts = [int(chunk_id) * size for chunk_id in job.chunk_ids]
        return [self._memory[start : start + size] for start in starts]


AnyTier = ZoneSecondaryTier[Any, Any]
"""The disk tier or the shared tier."""
