"""The shared tier, as a secondary tier of vLLM's tiering manager: storages that many engines use."""

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
from vllm.v1.kv_offload.tiering.base import ParentManager, TransferJob

from tenantzone_runtime.engine.tiers.secondary_tier import ZoneSecondaryTier
from tenantzone_runtime.shared.manager.queries import Finding, Query
from tenantzone_runtime.shared.tier import SharedTier
from tenantzone_runtime.shared.transfers.storing import Chunks

_RESULTS = {Finding.HIT: LookupResult.HIT, Finding.MISS: LookupResult.MISS, Finding.WAIT: LookupResult.RETRY}


@dataclass(slots=True)
class _SharedCaller:
    """The tier's state for one request."""

    tenant: str
    query: Query = field(default_factory=lambda: Query(()))
    is_finished: bool = False


class ZoneSharedTier(ZoneSecondaryTier):
    """One engine's access to the storages that the pool's engines share.

    A look-up that needs the manager's answer must be repeated. Until the answer arrives or times out, only the request
    that needs it waits.

    Args:
        offloading_spec: vLLM's spec.
        primary_kv_view: the memory of the CPU memory tier, one row per chunk.
        tier_type: the tier's name in vLLM's metrics.
        shared: the shared tier. Its chunks must be as long as a row.
        read_salt_key: reads the pool's salt key, which may have changed and which the seals depend on.
    """

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        shared: SharedTier,
        read_salt_key: Callable[[], object] = bool,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, Locality.REMOTE, shared)
        self.shared = shared
        self._read_salt_key = read_salt_key
        self._promised: dict[str, set[OffloadKey]] = {}
        """Keys, by tenant, that were reported as hits in this step and whose load has not begun."""
        self.moves_whole_hits = False
        """Whether the caller loads and stores whole hits, instead of looking up chunk by chunk."""

    def forget_all(self) -> Iterator[None]:
        self._read_salt_key()
        return super().forget_all()

    def condemn(self, req_context: ReqContext, keys: Iterable[OffloadKey]) -> None:
        caller = req_context.get_state(_SharedCaller)
        if caller is not None:
            self.shared.lose(caller.tenant, keys)

    # Requests

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        tenant = self._bound.pop(req_context.req_id, None)
        if tenant is not None:
            req_context.set_state(_SharedCaller(tenant))
        return RequestOffloadingContext()

    def know_prompt(self, req_context: ReqContext, keys: Sequence[OffloadKey]) -> None:
        caller = req_context.get_state(_SharedCaller)
        if caller is not None:
            caller.query.keys, caller.query.context = keys, req_context

    def on_request_finished(self, req_context: ReqContext) -> None:
        caller = req_context.get_state(_SharedCaller)
        if caller is not None and not caller.is_finished:
            caller.is_finished = True
            self.shared.ended(caller.tenant, caller.query)

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Do nothing, because the manager records the use of keys when it answers queries."""

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        caller = req_context.get_state(_SharedCaller)
        if caller is None or self.moves_whole_hits:
            return LookupResult.MISS
        promised = self._promised.setdefault(caller.tenant, set())
        finding = self.shared.find(caller.tenant, caller.query, key, len(promised) - (key in promised))
        if finding is Finding.HIT:
            promised.add(key)
        return _RESULTS[finding]

    def is_waiting(self, req_context: ReqContext) -> bool:
        caller = req_context.get_state(_SharedCaller)
        return caller is not None and self.shared.is_waiting(caller.query)

    def is_storing(self, req_context: ReqContext) -> bool:
        """Returns whether chunks of a request are still being written."""
        caller = req_context.get_state(_SharedCaller)
        return caller is not None and bool(caller.query.writes)

    def query_of(self, req_context: ReqContext) -> Query:
        """Returns a request's query to the manager, with the answer. A request without a zone has an empty query."""
        caller = req_context.get_state(_SharedCaller)
        return Query(()) if caller is None else caller.query

    # Whole hits

    def longest_hit(self, req_context: ReqContext, chunks: int) -> int | None:
        """Returns the length, in chunks, of the longest beginning of a prompt that storages have as a whole hit.

        Args:
            req_context: the request's context.
            chunks: the number of chunks of the prompt to consider.

        Returns:
            The length, or None if the manager has not answered yet and the query has not timed out.
        """
        caller = req_context.get_state(_SharedCaller)
        if caller is None:
            return 0
        if caller.query.asked is None:
            caller.query.keys = list(caller.query.keys[:chunks])
        hit = self.shared.whole_hits.longest(caller.tenant, caller.query)
        return 0 if hit is not None and hit > chunks else hit

    def may_load(self, keys: Sequence[OffloadKey], req_context: ReqContext) -> bool:
        """Returns whether all the chunks may be loaded now."""
        caller = req_context.get_state(_SharedCaller)
        if caller is None:
            return False
        promised = len(self._promised.get(caller.tenant, ()))
        return self.shared.whole_hits.may_load(caller.tenant, caller.query, keys, promised)

    def promise(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        """Record that these chunks will be loaded at the end of this step."""
        caller = req_context.get_state(_SharedCaller)
        if caller is not None:
            self._promised.setdefault(caller.tenant, set()).update(keys)
            self.shared.whole_hits.promise(caller.query, list(keys))

    def lacks(self, hit: Sequence[OffloadKey], req_context: ReqContext) -> list[OffloadKey]:
        """Returns the last keys of a hit, those that storages may lack. Empty if they lack none or accept none."""
        caller = req_context.get_state(_SharedCaller)
        if caller is None:
            return []
        return list(hit[self.shared.whole_hits.first_lacking(caller.tenant, caller.query, hit) :])

    def store_hit(self, job: TransferJob, hit: Sequence[OffloadKey]) -> None:
        """Begin to store the chunks of a hit that storages may lack. Stores nothing if not all of them fit."""
        caller = job.req_context.get_state(_SharedCaller)
        first = len(hit) - len(job.keys)
        if caller is None or list(job.keys) != list(hit[first:]):
            # Some chunks are gone, because they were purged meanwhile or their zone is being removed.
            self.shared.end_at_once(job.job_id)
            return
        chunks = list(zip(range(first, len(hit)), job.keys, self._rows(job), strict=True))
        self.shared.whole_hits.store(job.job_id, caller.tenant, caller.query, hit, chunks)

    # Transfers

    def submit_store(self, job_metadata: TransferJob) -> None:
        caller = job_metadata.req_context.get_state(_SharedCaller)
        if caller is None:
            self.shared.end_at_once(job_metadata.job_id)
            return
        self.shared.store(job_metadata.job_id, caller.tenant, caller.query, self._chunks(job_metadata))

    def serve_external_requests(self, parent: ParentManager) -> None:
        """Store missing beginnings of prompts from CPU memory, because stored later chunks are useless without them."""
        for gap in self.shared.take_gaps():
            keys = gap.query.keys[gap.first : gap.end]
            self.submit_store(parent.create_store_job(keys, gap.query.context))

    def has_pending_work(self) -> bool:
        return self.shared.has_gaps

    def submit_load(self, job_metadata: TransferJob) -> None:
        caller = job_metadata.req_context.get_state(_SharedCaller)
        assert caller is not None, "a caller that loads has a zone"
        self._loads.add(job_metadata.job_id)
        self.shared.load(job_metadata.job_id, caller.tenant, caller.query, self._chunks(job_metadata))

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        # By now, every promised chunk is being loaded, or vLLM had no room for it.
        self._promised.clear()

    def _chunks(self, job: TransferJob) -> Chunks:
        """Returns a job's whole chunks with their indexes in the prompt, keys and rows.

        With several KV cache groups, chunks of different groups have the same indexes.
        """
        ends = [job.req_context.get_offload_key_position(key) for key in job.keys]
        tokens = self.shared.shape.tokens
        return [
            (end // tokens - 1, key, row)
            for end, key, row in zip(ends, job.keys, self._rows(job), strict=True)
            if end is not None
        ]
