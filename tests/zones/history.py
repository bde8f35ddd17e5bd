"""Runs the block operations of an engine on the core and on the naive model side by side."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event

from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.blocks.eviction import make_room, trim_to_limit
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.model.zone import Zone
from tests.reservations import Reservations
from tests.zones.configs import CAPACITY, registered_terms
from tests.zones.history_engine import HistoryEngine
from tests.zones.history_pool import HistoryPool, HistoryZone
from tests.zones.history_tokens import BLOCK_TOKENS, StepTokensWatched
from tests.zones.history_watched import WatchedArbiter, WatchedTenancy
from tests.zones.lent import LentInAll


@dataclass(eq=False, repr=False)
class Request:
    """A request: a prompt, and output that needs one more block every ``interval`` steps up to its maximum length."""

    prompt: int
    longest: int
    interval: int = 1
    chunk: int = CAPACITY
    """Blocks of a prompt that one step computes."""
    hits: int = 0
    """The number of its zone's cached blocks that its prompt begins with, if they are still cached."""
    shared: int = 0
    """The number of blocks by which an estimate without a prefix hit is too high."""
    priority: int = 0
    zone: Zone | None = None
    twin: HistoryZone | None = None
    """Its zone in the model."""
    purges: int = 0
    """Purges of its zone before its first admission."""
    peak: int = 0
    ticks: int = 0
    to_compute: int = 0
    """Tokens to compute: those of its prompt, and those it had generated when it was admitted."""
    computed: int = 0
    """Tokens computed of `to_compute`, and of what it has generated since."""
    blocks: list[int] = field(default_factory=list)
    running: bool = False

    def __repr__(self) -> str:
        return f"{self.prompt} to {self.longest} blocks by {self.interval}, hits {self.hits}, priority {self.priority}"

    @property
    def needed(self) -> int:
        """Blocks for all tokens that it has now."""
        return min(self.longest, self.prompt + self.ticks // self.interval)

    @property
    def is_done(self) -> bool:
        return self.ticks >= (self.longest - self.prompt + 1) * self.interval

    def solo_steps(self, step_tokens: int | None, chunk_tokens: int) -> int:
        """The steps that it still takes if it runs alone."""
        each = self.chunk * BLOCK_TOKENS
        prompt = -(-self.needed * BLOCK_TOKENS // (min(each, step_tokens or each) // chunk_tokens * chunk_tokens))
        return (self.longest - self.prompt + 1) * self.interval - self.ticks + prompt


def by_tenant(evictions: Any) -> dict[str, list[int]]:
    """Returns the blocks that each zone lost, in the order in which it lost them."""
    lost: dict[str, list[int]] = {}
    for tenant, block, *_ in evictions:
        lost.setdefault(tenant, []).append(block)
    return lost


class History:
    """One engine, its requests, and the naive model of its zones. Each method checks its own effect."""

    new_arbiter = WatchedArbiter

    def __init__(self):
        super().__init__()
        self.config = None
        self.seen = set()
        self.seats, self.headroom, self.by_priority = 3, 0, False
        self.step_tokens, self.chunk_tokens, self.depth, self.is_learned = None, 1, 1, False
        self._start(0.0)

    def _saw(self, what):
        self.seen.add(what)
        event(what)

    def _start(self, now):
        self.now = now
        self.tenancy = WatchedTenancy(self, CAPACITY, now)
        self.ledger = self.tenancy.ledger
        self.model = HistoryPool(CAPACITY, self.seats, self.headroom, now)
        self.engine = HistoryEngine(
            self, self.seats, self.headroom, self.by_priority, self.step_tokens, self.chunk_tokens, self.depth
        )
        self.arbiter = self.new_arbiter(self, self.tenancy, self.engine)
        self.tokens = StepTokensWatched(self, is_learned=self.is_learned)
        self.requests: list[Request] = []
        self.lent = LentInAll()
        self.is_in_step = False
        """Whether a step is running; stays true after a step that failed."""
        self.promised: list[Request] = []
        """Waiting requests within their zone's reservation that lacked blocks, but no seat, in the last step."""
        self.lost_turn: list[Request] = []
        """Running requests that found no blocks in the last step, in order."""
        self.turned_down = None
        """The last request for which the engine found no blocks although it might be admitted."""
        self.overlooked = None
        """The zone of a request that was turned down twice: the next step admits none of its requests."""
        self.reclaimed = []
        """Blocks evicted by surplus reclaim that the engine has not been notified of."""
        self.covered_for = None
        """The borrower whose loans were covered by evicted blocks that the engine has not been notified of."""

    @property
    def free(self):
        return len(self.model.free)

    @property
    def unknown(self):
        """The config's terms for undeclared tenants; None: their requests are refused."""
        unknown = None if self.config is None else self.config.pool.unknown_tenants
        return None if unknown is None or unknown.mode == "Reject" else unknown

    def returned(self, evictions):
        """Frees blocks that the core evicted, as an engine does. Returns them in order, each with its tenant."""
        returned = []
        for zone, blocks in evictions:
            in_use = {block for request in self.requests for block in request.blocks}
            assert not in_use & set(blocks), "I6: a block in use was evicted"
            if blocks:
                states.blocks_evicted(self.ledger, zone)
                returned += [(zone.spec.tenant, block) for block in blocks]
            configure.discard_if_gone(self.ledger, zone)
        return returned

    def reasons(self):
        """Why and for which beneficiary zones lost blocks since the last call."""
        notes = self.ledger.trail.collect()
        self.lent.take(notes)
        return {(note.zone, note.reason, note.beneficiary): note.blocks for note in notes if note.kind == "evicted"}

    def check_reasons(self, expected, beneficiary=None):
        """Checks why and for which beneficiary zones lost blocks since the last call, against the model's evictions."""
        name = None if beneficiary is None else beneficiary.tenant or None
        assert self.reasons() == Counter((tenant, reason, name) for tenant, _, reason in expected)

    def check_evictions(self, evictions):
        """Frees blocks that the core evicted, and checks them against those that the model has evicted."""
        expected = self.model.collect_evictions()
        assert by_tenant(self.returned(evictions)) == by_tenant(expected)
        self.check_reasons(expected)

    def look_who_lends(self):
        """Quiet times end and begin with the engine's waiting requests, and for no other reason."""
        for tenant, zone in self.ledger.zones.items():
            twin = self.model.zones[tenant]
            if zone.quiet and not twin.quiet:
                assert not self.engine.is_open or not self.engine.running, "lends what a request could use"
                self._saw("lends what it does not use")
                self.model.lend_unused(twin)
            elif twin.quiet and not zone.quiet:
                assert zone in self.engine.queues, "no request asks for what it lends"
                twin.quiet = twin.lends_unused = False

    def give_back_due(self, evictions, borrower=None):
        """Returns surplus that stood on expired loans; the loan book decides which loans these are.

        Before requests of a ``borrower`` are preempted, a quiet zone also gives up what it lends to that borrower.
        """
        for zone, blocks in evictions:
            twin = self.model.zones[zone.spec.tenant]
            kept = twin.reserved if borrower is None else twin.floor(borrower)
            assert len(blocks) <= twin.cached_above(kept), "I7: what it keeps of its reservation is not on loan"
            if len(blocks) > twin.cached_surplus:
                assert twin is not borrower
                self._saw("evicted: lent for longer than what was due")
            self.model.evict(twin, len(blocks), "due")
            assert self.model.collect_evictions() == [(twin.tenant, block, "due") for block in blocks]
            self._saw("evicted: due")

    def reload_model(self, terms):
        model, unknown = self.model, self.unknown
        for twin in [twin for twin in model.zones.values() if twin.tenant not in terms]:
            if twin.auto and unknown is not None:
                model.change_spec(twin, **registered_terms(unknown, twin.tenant))
            else:
                model.dismiss(twin)
        for tenant, term in terms.items():
            known = model.zones.get(tenant)
            if known is None:
                model.add(tenant, **term)
            else:
                self._saw("a zone that was leaving is declared again" if known.leaving else "a zone changes")
                model.change_spec(known, **term)
        model.give_reservations()

    def take(self, request, count, *, growing):
        """Allocates a request's blocks if it may have them: first hits in its zone's cache, if it is being admitted."""
        zone, twin = request.zone, request.twin
        hits = 0 if growing else min(request.hits, count, len(twin.cached))
        if not growing and not request.ticks:
            request.purges = twin.purges
        blocks = twin.cached[-2::-2][:hits]
        self.ledger.reuse(zone, blocks)
        self.model.reuse(twin, blocks)
        request.blocks += blocks
        count -= len(blocks)
        assert self.model.takeable(twin, growing=growing, peak=request.peak) >= count, "allowed with its hits"
        if count:
            self._take_new(request, count, growing=growing)

    def _take_new(self, request, count, *, growing):
        zone, twin = request.zone, request.twin
        before = {other: (other.held, other.floor(), other.quiet) for other in self.model.zones.values()}
        entitled = twin.is_entitled_to(count)
        free, kept = self.free, Reservations(self.ledger.zones.values())
        lent = self.model.lent_to_requests(twin, count)
        self.model.make_room(twin, count)
        expected = self.model.collect_evictions()
        evictions = make_room(self.ledger, zone, count, free)
        assert self.returned(evictions) == [(tenant, block) for tenant, block, _ in expected]
        self.check_reasons(expected, twin)
        for reason in dict.fromkeys(reason for _, _, reason in expected):
            self._saw(f"evicted: {reason}")
        for other, (held, floor, quiet) in before.items():
            if other is not twin and other.held < held:
                assert other.held >= min(held, floor), "I7: cut below what it keeps"
                assert quiet or entitled or growing, "an active zone pays for another zone's admission"
        assert self.free >= count, "what may be taken can be taken"
        blocks = sorted(self.model.free)[:count]
        self.ledger.take(zone, blocks)
        kept.check_kept(lent)
        self.model.take(twin, blocks)
        request.blocks += blocks

    def let_go(self, request, kept):
        """Frees a request's blocks and caches the first `kept` of them."""
        zone, twin = request.zone, request.twin
        assert zone.purges == twin.purges
        is_forgotten = twin.leaving or request.purges != twin.purges
        if request.purges != twin.purges and request.blocks:
            self._saw("ended after a purge")
        kept = 0 if is_forgotten else min(kept, len(request.blocks))
        kept, dropped = request.blocks[:kept], request.blocks[kept:]
        request.blocks = []
        self.ledger.release(zone, kept, dropped)
        self.model.release(twin, kept, dropped)
        self.model.trim(twin)
        self.check_evictions([(zone, trim_to_limit(self.ledger, zone))])

    def end(self, request, kept=CAPACITY):
        """Ends a waiting or running request."""
        self.requests.remove(request)
        self.engine.remove(request)
        if request.zone is None:
            self.model.before_zones -= set(request.blocks)
            self.model.free |= set(request.blocks)
            return
        self.let_go(request, kept)
        self.tenancy.request_finished(request.zone, self.now)
        self.model.now = self.now
        self.model.end(request.twin)
        if not request.twin.requests:
            assert request.zone.wait_reason is None
