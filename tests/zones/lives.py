"""What an engine's adapter does for its requests, done to the core and to the reference side by side."""

from dataclasses import dataclass, field

from hypothesis import event
from hypothesis import strategies as st

from tenantzone_runtime.zones import configure, preemption, states
from tenantzone_runtime.zones.eviction import make_room, trim_to_limit
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone
from tests.zones.configs import CAPACITY, registered_terms
from tests.zones.lent import LentInAll
from tests.zones.reference import Claim, World


@dataclass(eq=False)
class Request:
    zone: Zone | None = field(repr=False)
    claim: Claim | None = field(repr=False)
    blocks: list[int] = field(default_factory=list)
    running: bool = False


def by_tenant(payments):
    """Blocks that each zone lost, in its own order."""
    lost = {}
    for tenant, blocks, *_ in payments:
        if blocks:
            lost.setdefault(tenant, []).extend(blocks)
    return lost


class Lives:
    """One engine, its requests, and the reference of both. Each method checks what it does."""

    def __init__(self):
        super().__init__()
        self.config = None
        self.seen = set()
        self._start(0.0)

    def _saw(self, what):
        self.seen.add(what)
        event(what)

    def _start(self, now):
        self.now = now
        self.tenancy = Tenancy(CAPACITY, CAPACITY, now)
        self.ledger = self.tenancy.ledger
        self.world = World(CAPACITY, now)
        self.requests: list[Request] = []
        self.lent = LentInAll()

    @property
    def free(self):
        return len(self.world.free)

    @property
    def unknown(self):
        """What the config says of tenants that it does not declare; None: they are refused."""
        unknown = None if self.config is None else self.config.pool.unknown_tenants
        return None if unknown is None or unknown.mode == "Reject" else unknown

    def _evicted(self, evictions):
        """What the adapter does with blocks that the core evicted. Returns them by tenant."""
        payments = []
        for zone, blocks in evictions:
            in_use = {block for request in self.requests for block in request.blocks}
            assert not in_use & set(blocks), "I6: a block in use was evicted"
            if blocks:
                states.blocks_evicted(self.ledger, zone)
                payments.append((zone.spec.tenant, blocks))
            configure.discard_if_gone(self.ledger, zone)
        return payments

    def _reasons(self):
        """Why and for whom zones lost blocks since the last call."""
        notes = self.ledger.trail.collect()
        self.lent.take(notes)
        return {(note.zone, note.reason, note.beneficiary): note.blocks for note in notes if note.kind == "evicted"}

    def _check_reasons(self, paid, beneficiary=None):
        expected = {}
        for tenant, blocks, reason in paid:
            key = tenant, reason, None if beneficiary is None else beneficiary.tenant
            expected[key] = expected.get(key, 0) + len(blocks)
        assert self._reasons() == expected

    def _reload_reference(self, terms):
        paid = []
        world, unknown = self.world, self.unknown
        for claim in [claim for claim in world.claims.values() if claim.tenant not in terms]:
            if claim.auto and unknown is not None:
                paid += world.respec(claim, **registered_terms(unknown, claim.tenant))
            else:
                paid += world.dismiss(claim)
        for tenant, term in terms.items():
            known = world.claims.get(tenant)
            if known is None:
                world.add(tenant, **term)
            else:
                self._saw("a zone that was leaving is declared again" if known.leaving else "a zone changes")
                paid += world.respec(known, **term)
        world.give_reservations()
        return paid

    def _give_grace(self, zone):
        """As the adapter does: a request that a lowered limit catches may finish; here, with two more blocks."""
        most = max((len(request.blocks) + 2 for request in self.requests if request.zone is zone), default=0)
        zone.grace = most if most > zone.spec.quota.limit else 0
        self.world.claims[zone.spec.tenant].grace = zone.grace

    def _admit(self, data, request, count, hits):
        zone, claim = request.zone, request.claim
        growing = request.running
        if count > self.world.takeable(claim, growing=growing) and not growing:
            self._relieve(zone, claim, count)
        if zone is not None and count > self.world.takeable(claim, growing=growing):
            self.tenancy.must_wait(zone, count, self.free)
            assert zone.wait_reason == self.world.wait_reason(claim, count)
            self._saw(f"waits: {zone.wait_reason}")
            if preemption.is_entitled(zone, count):
                self._reclaim(zone, claim, count, spare=request)
        count = min(count, self.world.takeable(claim, growing=growing))
        if zone is not None:
            hits = 0 if growing else min(hits, count, len(claim.cached))
            blocks = data.draw(st.permutations(claim.cached))[:hits] if hits else []
            self.ledger.reuse(zone, blocks)
            self.world.reuse(claim, blocks)
            request.blocks += blocks
            count -= hits
            allowed = self.world.takeable(claim, growing=growing)
            assert allowed >= count, "what was allowed with its hits is allowed after them"
        request.running = True
        self._grow(request, count, growing=growing)

    def _relieve(self, zone, claim, count):
        """A zone that is denied blocks may get what active zones cache above their reservations."""
        before = {other: other.held for other in self.world.others(claim)}
        paid = self.world.relieve(claim, count)
        evictions = self.tenancy.relieve(zone, count, self.free - sum(len(blocks) for _, blocks, _ in paid))
        assert self._evicted(evictions) == [(tenant, blocks) for tenant, blocks, _ in paid]
        self._check_reasons(paid, claim)
        for other, held in before.items():
            assert other.held >= min(held, other.reserved), "I7: cut below its reservation"
        if paid:
            self._saw("relieved")
            assert self.world.takeable(claim) >= count, "nothing is evicted in vain"

    def _grow(self, request, count, *, growing):
        if count <= 0:
            return
        zone, claim = request.zone, request.claim
        before = {other: (other.held, other.floor, other.quiet) for other in self.world.claims.values()}
        entitled = self.world.is_entitled(claim, count)
        paid = self.world.pay_for(claim, count)
        evictions = make_room(self.ledger, zone, count, self.free - sum(len(blocks) for _, blocks, _ in paid))
        assert self._evicted(evictions) == [(tenant, blocks) for tenant, blocks, _ in paid]
        self._check_reasons(paid, claim)
        for _, _, reason in paid:
            self._saw(f"evicted: {reason}")
        for other, (held, floor, quiet) in before.items():
            if other is not claim and other.held < held:
                assert other.held >= min(held, floor), "I7: cut below what it keeps"
                assert quiet or entitled or growing, "an active zone pays for somebody's admission"
        assert self.free >= count, "what may be taken can be taken"
        blocks = sorted(self.world.free)[:count]
        if zone is not None:
            self.ledger.take(zone, blocks)
        self.world.take(claim, blocks)
        request.blocks += blocks

    def _reclaim(self, zone, claim, count, spare):
        """I2 in full: within one step an entitled zone gets its blocks, from whoever runs above their reservation."""
        assert self.world.reclaimable_by_force(claim) >= count, "promises add up to no more than there is"
        while self.world.takeable(claim) < count:
            running = [request for request in self.requests if request.running]
            index = preemption.choose_victim([request.zone for request in running], zone, count)
            assert index is not None, "I2: a promise was not kept"
            victim = running[index]
            assert victim is not spare
            self._check_victim(victim, running, zone, count)
            self._saw("preempted: " + ("no zone" if victim.zone is None else "reclaim"))
            self._preempt(victim)

    def _check_victim(self, victim, running, beneficiary, count):
        yielding = [
            (0 if request.claim is None else request.claim.priority, -index, request)
            for index, request in enumerate(running)
            if request.claim is None
            or (request.zone is not beneficiary and len(request.claim.in_use) > request.claim.reserved)
        ]
        assert victim is min(yielding, key=lambda rank: rank[:2])[2]
        assert preemption.may_yield(victim.zone, beneficiary, count)

    def _preempt(self, request):
        self._let_go(request, kept=len(request.blocks) // 2)
        request.running = False

    def _let_go(self, request, kept):
        zone, claim = request.zone, request.claim
        kept = 0 if claim is None or claim.leaving else min(kept, len(request.blocks))
        kept, dropped = request.blocks[:kept], request.blocks[kept:]
        request.blocks = []
        if zone is not None:
            self.ledger.release(zone, kept, dropped)
        self.world.release(claim, kept, dropped)
        if zone is not None:
            payments = self._evicted([(zone, trim_to_limit(self.ledger, zone))])
            paid = self.world.trim(claim)
            assert by_tenant(payments) == by_tenant(paid)
            self._check_reasons(paid)

    def _end(self, request, kept):
        self.requests.remove(request)
        self._let_go(request, kept)
        if request.zone is not None:
            self.tenancy.request_finished(request.zone, self.now)
            self.world.now = self.now
            self.world.end(request.claim)
            if not request.claim.requests:
                assert request.zone.wait_reason is None
            if request.zone.grace:
                self._give_grace_if_known(request.zone)

    def _give_grace_if_known(self, zone):
        if self.ledger.zones.get(zone.spec.tenant) is zone:
            self._give_grace(zone)
