"""How a request uses the shared tier, which consists of storages that the pool's engines share.

A look-up may need an answer from the KV-cache manager. Until the answer arrives or times out, the look-up must be
repeated, and only the request that needs the answer waits.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Self

from vllm.v1.kv_offload.base import Locality, LookupResult, OffloadKey, ReqContext
from vllm.v1.kv_offload.tiering.base import TransferJob

from tenantzone_runtime.engine.tiers.secondary_tier import TierRequest, ZoneSecondaryTier
from tenantzone_runtime.shared.manager.queries import Finding, Query
from tenantzone_runtime.shared.tier import SharedTier
from tenantzone_runtime.shared.transfers.storing import Chunks

_RESULTS = {Finding.HIT: LookupResult.HIT, Finding.MISS: LookupResult.MISS, Finding.WAIT: LookupResult.RETRY}


class SharedRequest(TierRequest[SharedTier]):
    """One request's use of the shared tier."""

    tier_type = "shared"
    locality = Locality.REMOTE

    def __init__(self, below: SharedTier, tenant: str) -> None:
        super().__init__(below, tenant)
        self.query = Query(())
        """The query to the KV-cache manager, and the manager's answer."""
        self._tenant = tenant

    @classmethod
    def begin(cls, below: SharedTier, tenant: str) -> Self:
        return cls(below, tenant)

    def know_prompt(self, keys: Sequence[OffloadKey], context: ReqContext) -> None:
        self.query.keys, self.query.context = keys, context

    def end(self) -> None:
        self.below.ended(self._tenant, self.query)

    def touch(self, keys: Collection[OffloadKey]) -> None:
        """Do nothing, because the KV-cache manager records the use of keys when it answers queries."""

    def lose(self, keys: Iterable[OffloadKey]) -> None:
        self.below.lose(self._tenant, keys)

    def find(self, key: OffloadKey, promised: int) -> LookupResult:
        return _RESULTS[self.below.find(self._tenant, self.query, key, promised)]

    @property
    def is_waiting(self) -> bool:
        return self.below.is_waiting(self.query)

    @property
    def is_storing(self) -> bool:
        """Whether chunks of the request are still being written."""
        return bool(self.query.writes)

    def store(self, job: TransferJob, rows: Sequence[memoryview]) -> None:
        self.below.store(job.job_id, self._tenant, self.query, self._chunks(job, rows))

    def load(self, job: TransferJob, rows: Sequence[memoryview], *, is_whole_hit: bool) -> None:
        self.below.load(job.job_id, self._tenant, self.query, self._chunks(job, rows))

    def longest_hit(self, chunks: int) -> int | None:
        """Returns the length in chunks of the prompt's longest hit whose chunks are all in storages.

        Args:
            chunks: the maximum length in chunks.

        Returns:
            The length, or None if the KV-cache manager has not answered yet and the query has not timed out.
        """
        if self.query.asked is None:
            self.query.keys = list(self.query.keys[:chunks])
        hit = self.below.whole_hits.longest(self._tenant, self.query)
        return 0 if hit is not None and hit > chunks else hit

    def may_load(self, keys: Sequence[OffloadKey], promised: int) -> bool:
        return self.below.whole_hits.may_load(self._tenant, self.query, keys, promised)

    def promise(self, keys: Sequence[OffloadKey]) -> None:
        self.below.whole_hits.promise(self.query, keys)

    def lacks(self, hit: Sequence[OffloadKey]) -> list[OffloadKey]:
        # The last chunks of a hit may be missing in the storages.
        return list(hit[self.below.whole_hits.first_lacking(self._tenant, self.query, hit) :])

    def store_hit(self, job: TransferJob, rows: Sequence[memoryview], hit: Sequence[OffloadKey]) -> None:
        first = len(hit) - len(job.keys)
        if list(job.keys) != list(hit[first:]):
            # Some chunks no longer exist, because they were purged meanwhile or their zone is being removed.
            self.below.end_at_once(job.job_id)
            return
        chunks = list(zip(range(first, len(hit)), job.keys, rows, strict=True))
        self.below.whole_hits.store(job.job_id, self._tenant, self.query, hit, chunks)

    @classmethod
    def has_gaps(cls, below: SharedTier) -> bool:
        return below.has_gaps

    @classmethod
    def take_gaps(cls, below: SharedTier) -> list[tuple[Sequence[OffloadKey], ReqContext]]:
        return [(gap.query.keys[gap.first : gap.end], gap.query.context) for gap in below.take_gaps()]

    def _chunks(self, job: TransferJob, rows: Sequence[memoryview]) -> Chunks:
        """Returns a job's chunks that have a position in the prompt: each chunk's index there, its key and its row.

        If there are several KV cache groups, chunks of different groups have the same indexes.
        """
        ends = [job.req_context.get_offload_key_position(key) for key in job.keys]
        tokens = self.below.shape.tokens
        return [
            (end // tokens - 1, key, row) for end, key, row in zip(ends, job.keys, rows, strict=True) if end is not None
        ]


ZoneSharedTier = ZoneSecondaryTier[SharedTier, SharedRequest]
"""The type of the shared tier."""
