"""The simulated engine's block pool: a free list, reference counts, and a prefix index for each zone.

It uses the zone core in the same way as the vLLM adapter's block pool, but without vLLM.
"""

from bench.simulator.checks import Checks
from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.blocks.eviction import Evictions, make_room, trim_to_limit
from tenantzone_runtime.zones.config.configure import discard_if_gone
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy


class BlockPool:
    """The blocks of one engine.

    Args:
        capacity: the number of blocks.
        now: the time, in simulated seconds.
        checks: the checks to call when blocks are allocated, evicted or shared.
    """

    def __init__(self, capacity: int, now: float, checks: Checks) -> None:
        self.capacity = capacity
        self.tenancy = Tenancy(capacity, capacity, now)
        self.ledger = self.tenancy.ledger
        self.free = list(range(capacity))
        self.references = [0] * capacity
        self.hashes: list[int | None] = [None] * capacity
        self.index: dict[Zone, dict[int, int]] = {}
        self._checks = checks

    def find_hits(self, request: Request) -> list[int]:
        """Returns the cached blocks of its zone with which the request begins, always excluding its last token."""
        index = self.index.get(request.zone)
        hits: list[int] = []
        if index:
            for number in range((request.tokens - 1) // BLOCK_TOKENS):
                block_id = index.get(request.block_hash(number))
                if block_id is None:
                    break
                hits.append(block_id)
        return hits

    def count_to_admit(self, request: Request) -> int:
        """Returns how many more blocks are in use after the request's admission: new ones, and unused cached ones."""
        in_use_already = sum(1 for block_id in self.find_hits(request) if self.references[block_id])
        return request.blocks_to_admit - in_use_already

    def admit(self, request: Request) -> None:
        """Give a request its blocks for admission, from its zone's cache if possible."""
        hits = self.find_hits(request)
        self._checks.hit(request.zone, hits, self.ledger)
        cached = [block_id for block_id in hits if not self.references[block_id]]
        if cached:
            self.ledger.reuse(request.zone, cached)
        for block_id in hits:
            self.references[block_id] += 1
        request.blocks = hits + self.take(request, request.blocks_to_admit - len(hits))
        request.hashed = len(hits)
        request.computed = len(hits) * BLOCK_TOKENS

    def take(self, request: Request, count: int, *, growing: bool = False) -> list[int]:
        """Take new blocks for a request that may have them; ``growing`` if it is already running."""
        zone = request.zone
        evictions = make_room(self.ledger, zone, count, len(self.free))
        self._checks.room_made(zone, count, evictions, growing=growing)
        self.return_evicted(evictions)
        self._checks.enough(zone, count, len(self.free))
        taken = self.free[len(self.free) - count :]
        del self.free[len(self.free) - count :]
        self.ledger.take(zone, taken)
        for block_id in taken:
            self.references[block_id] = 1
        self._checks.taken(request, count, len(self.free), self.ledger, growing=growing)
        return taken

    def remember_computed(self, request: Request) -> None:
        """Add a request's newly filled blocks to its zone's prefix index."""
        full = request.computed // BLOCK_TOKENS
        if request.hashed >= full:
            return
        index = self.index.setdefault(request.zone, {})
        for number in range(request.hashed, full):
            block_id, block_hash = request.blocks[number], request.block_hash(number)
            # If two requests compute the same block at the same time, keep the first.
            if block_hash not in index:
                index[block_hash] = block_id
                self.hashes[block_id] = block_hash
        request.hashed = full
        if request.zone.backoff_ticket:
            # The zone's next request may have more hits now, and so need fewer blocks.
            self.ledger.totals.reconsider(request.zone)

    def release(self, request: Request) -> None:
        """Release a request's blocks, so that its last block is evicted first."""
        zone = request.zone
        kept: list[int] = []
        dropped: list[int] = []
        for block_id in reversed(request.blocks):
            self.references[block_id] -= 1
            if not self.references[block_id]:
                is_kept = self.hashes[block_id] is not None and not zone.leaving
                (kept if is_kept else dropped).append(block_id)
        request.blocks, request.hashed, request.computed = [], 0, 0
        self.ledger.release(zone, kept, dropped)
        self._forget(zone, dropped)
        # The zone may exceed its limit if that was lowered while the blocks were in use.
        self.return_evicted([(zone, trim_to_limit(self.ledger, zone))])

    def return_evicted(self, evictions: Evictions) -> None:
        """Free evicted blocks, and remove them from the prefix indexes of their former owners."""
        for zone, block_ids in evictions:
            if block_ids:
                self._checks.evicted(zone, block_ids, self.references)
                self._forget(zone, block_ids)
                states.blocks_evicted(self.ledger, zone)
            self.discard_if_gone(zone)

    def discard_if_gone(self, zone: Zone) -> None:
        """Forget a zone that was removed from the config, once it has no blocks and requests."""
        discard_if_gone(self.ledger, zone)
        if self.ledger.zones.get(zone.spec.tenant) is not zone:
            self.index.pop(zone, None)

    def _forget(self, zone: Zone, block_ids: list[int]) -> None:
        index = self.index.get(zone, {})
        for block_id in block_ids:
            block_hash = self.hashes[block_id]
            if block_hash is not None:
                self.hashes[block_id] = None
                del index[block_hash]
        self.free += block_ids
