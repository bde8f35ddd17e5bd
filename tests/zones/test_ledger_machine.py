"""Random lives of zones, compared with the reference after every step, with the invariants checked.

The machine makes the calls that an engine's adapter makes: takes blocks for requests, hits caches, lets go, preempts,
reloads, restarts. ``reference.World`` says what must come of it.
"""

from dataclasses import dataclass, field

from hypothesis import event, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenantzone_contract.config import ConfigError, PoolConfig, UnknownTenants, UnknownTenantTemplate, Watermarks
from tenantzone_contract.config import make_config as snapshot
from tenantzone_runtime.zones import configure, preemption, states
from tenantzone_runtime.zones.eviction import make_room, trim_to_limit
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone
from tests.zones.reference import Claim, World
from tests.zones.zoo import declare

CAPACITY = 20
TENANTS = ("acme", "burst", "calm", "dusk")
SECONDS = st.sampled_from([0.0, 5.0, 10.0, 20.0])
MAYBE_SECONDS = st.one_of(st.none(), SECONDS)


@dataclass(eq=False)
class Request:
    zone: Zone | None = field(repr=False)
    claim: Claim | None = field(repr=False)
    blocks: list[int] = field(default_factory=list)
    running: bool = False


@st.composite
def shares(draw, most, *, base=CAPACITY):
    """Blocks, or the percentage that comes to no more."""
    blocks = draw(st.integers(0, most))
    return f"{100 * blocks // base}%" if base and draw(st.booleans()) else blocks


@st.composite
def zone_configs(draw, tenant, most):
    reserved = draw(shares(most))
    limit = None if draw(st.booleans()) else draw(st.integers(0, CAPACITY))
    if isinstance(limit, int) and isinstance(reserved, int):
        limit = max(limit, reserved)
    lendable = draw(st.sampled_from(["0%", "50%", "100%"]))
    if isinstance(reserved, int) and draw(st.booleans()):
        lendable = draw(st.integers(0, reserved))
    return declare(
        tenant,
        reserved=reserved,
        limit=limit,
        lendable=lendable,
        priority=draw(st.integers(-2, 2)),
        weight=draw(st.integers(1, 3)),
        borrowers=draw(st.sampled_from(["SameOrHigherPriority", "AnyPriority"])),
        max_loan=draw(MAYBE_SECONDS),
        grace=draw(SECONDS),
        after=draw(SECONDS),
        evict_after=draw(MAYBE_SECONDS),
        eviction_policy=draw(st.sampled_from(["LRU", "Clock"])),
    )


@st.composite
def pools(draw):
    mode = draw(st.sampled_from(["Reject", "AutoRegister"]))
    template = UnknownTenantTemplate(
        limit=draw(st.one_of(st.none(), shares(CAPACITY))),
        priority=draw(st.integers(-1, 1)),
        idle={"after_seconds": draw(SECONDS), "forget_after_seconds": draw(MAYBE_SECONDS)},
    )
    low, high = sorted((draw(st.integers(0, 10)), draw(st.integers(0, 10))))
    marks = Watermarks(low=low / 10, high=high / 10) if draw(st.booleans()) else Watermarks()
    return PoolConfig(
        namespace="n", name="p", unknown_tenants=UnknownTenants(mode=mode, template=template), watermarks=marks
    )


@st.composite
def configs(draw):
    """Mostly ones that fit; sometimes reservations add up to more than there is."""
    left = CAPACITY
    zones = []
    for tenant in draw(st.lists(st.sampled_from(TENANTS), unique=True)):
        zone = draw(zone_configs(tenant, left))
        left -= blocks_of(zone.reserved) if draw(st.integers(0, 9)) else 0
        zones.append(zone)
    return snapshot(1, draw(pools()), tuple(zones))


def blocks_of(share, base=CAPACITY, *, up=False):
    """What a share comes to, worked out in exact fractions."""
    if isinstance(share, int):
        return share
    whole, rest = divmod(base * int(share[:-1]), 100)
    return whole + (1 if up and rest else 0)


def terms_of(zone):
    reserved = blocks_of(zone.reserved)
    return {
        "reserved": reserved,
        "limit": CAPACITY if zone.limit is None else min(CAPACITY, blocks_of(zone.limit, up=True)),
        "lendable": min(reserved, blocks_of(zone.lending.lendable, reserved)),
        "priority": zone.priority,
        "any_priority": zone.lending.borrowers == "AnyPriority",
        "policy": zone.eviction_policy,
        "after": zone.idle.after_seconds,
        "evict_after": zone.idle.evict_after_seconds,
        "forget_after": zone.idle.forget_after_seconds,
        "auto": False,
    }


def template_terms(template):
    return {
        "reserved": 0,
        "limit": CAPACITY if template.limit is None else min(CAPACITY, blocks_of(template.limit, up=True)),
        "lendable": 0,
        "priority": template.priority,
        "any_priority": False,
        "policy": "LRU",
        "after": template.idle.after_seconds,
        "evict_after": template.idle.evict_after_seconds,
        "forget_after": template.idle.forget_after_seconds,
        "auto": True,
    }


def by_tenant(payments):
    """Blocks that each zone lost, in its own order."""
    lost = {}
    for tenant, blocks, *_ in payments:
        if blocks:
            lost.setdefault(tenant, []).extend(blocks)
    return lost


class ZoneLives(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.config = None
        self.seen = set()
        self._start(0.0)

    def teardown(self):
        # Hypothesis then looks for lives in which much happens.
        target(float(len(self.seen)), label="different things that happened")

    def _saw(self, what):
        self.seen.add(what)
        event(what)

    def _start(self, now):
        self.now = now
        self.tenancy = Tenancy(CAPACITY, CAPACITY, now)
        self.ledger = self.tenancy.ledger
        self.world = World(CAPACITY, now)
        self.requests: list[Request] = []
        self.billed = {}

    @property
    def free(self):
        return len(self.world.free)

    @property
    def template(self):
        unknown = None if self.config is None else self.config.pool.unknown_tenants
        return None if unknown is None or unknown.mode == "Reject" else unknown.template

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
        return {
            (note.zone, note.reason, note.beneficiary): note.blocks
            for note in self.ledger.trail.collect()
            if note.kind == "evicted"
        }

    def _check_reasons(self, paid, beneficiary=None):
        expected = {}
        for tenant, blocks, reason in paid:
            key = tenant, reason, None if beneficiary is None else beneficiary.tenant
            expected[key] = expected.get(key, 0) + len(blocks)
        assert self._reasons() == expected

    # Configs

    @initialize(config=st.one_of(st.none(), configs(), configs()))
    def first_config(self, config):
        if config is not None:
            self.reload(config)

    @rule(config=configs())
    def reload(self, config):
        before = dict(self.ledger.zones)
        specs = {name: zone.spec for name, zone in before.items()}
        terms = {zone.tenant: terms_of(zone) for zone in config.zones}
        fits = all(term["reserved"] <= term["limit"] for term in terms.values())
        fits = fits and sum(term["reserved"] for term in terms.values()) <= CAPACITY
        try:
            evictions = self.tenancy.apply(config, self.now)
        except ConfigError:
            self._saw("config refused")
            assert not fits
            assert self.ledger.zones == before, "I8: a config that is refused changes nothing"
            assert {name: zone.spec for name, zone in before.items()} == specs
            return
        assert fits
        self.config = config
        self.world.now = self.now
        payments = self._evicted(evictions)
        paid = self._reload_reference(terms)
        assert by_tenant(payments) == by_tenant(paid)
        self._check_reasons(paid)
        for zone in self.ledger.zones.values():
            self._give_grace(zone)

    def _reload_reference(self, terms):
        paid = []
        world, template = self.world, self.template
        for claim in [claim for claim in world.claims.values() if claim.tenant not in terms]:
            if claim.auto and template is not None:
                paid += world.respec(claim, **template_terms(template))
            else:
                paid += world.dismiss(claim)
        for tenant, term in terms.items():
            known = world.claims.get(tenant)
            if known is None:
                world.add(tenant, **term)
            else:
                self._saw("a zone that was leaving is declared again" if known.leaving else "a zone changes")
                paid += world.respec(known, **term)
        return paid

    def _give_grace(self, zone):
        """As the adapter does: a request that a lowered limit catches may finish; here, with two more blocks."""
        most = max((len(request.blocks) + 2 for request in self.requests if request.zone is zone), default=0)
        zone.grace = most if most > zone.spec.quota.limit else 0
        self.world.claims[zone.spec.tenant].grace = zone.grace

    @precondition(lambda self: self.config is not None)
    @rule(draw=st.integers(0, 7))
    def restart(self, draw):
        """The engine starts anew with the last config: nothing is held, nothing is known of loans."""
        if draw == 0:
            self._start(self.now)
            self.reload(self.config)

    # Requests

    @rule(tenant=st.sampled_from(TENANTS), data=st.data(), count=st.integers(1, CAPACITY), hits=st.integers(0, 6))
    def serve(self, tenant, data, count, hits):
        """A request arrives and is given blocks at once."""
        before = len(self.requests)
        self.arrive(tenant)
        if len(self.requests) > before:
            self._admit(data, self.requests[-1], count, hits)

    @rule(tenant=st.sampled_from(TENANTS), data=st.data(), count=st.integers(1, CAPACITY), hits=st.integers(0, 6))
    def serve_to_the_end(self, tenant, data, count, hits):
        """A request arrives, is given blocks, and leaves them cached."""
        before = len(self.requests)
        self.arrive(tenant)
        if len(self.requests) > before:
            request = self.requests[-1]
            self._admit(data, request, count, hits)
            self._end(request, CAPACITY)

    @rule(tenant=st.sampled_from(TENANTS))
    def arrive(self, tenant):
        claim = self.world.claims.get(tenant)
        zone = self.tenancy.zone_for(tenant, self.now)
        self.world.now = self.now
        if claim is None or claim.leaving:
            if self.template is None:
                assert zone is None
                return
            self._saw("auto-registered")
            if claim is None:
                claim = self.world.add(tenant, **template_terms(self.template))
            else:
                self.world.respec(claim, **template_terms(self.template))
        known = self.ledger.zones[tenant]
        assert zone is known
        if claim.state == "Evicted":
            self._saw("an Evicted zone wakes")
        self.tenancy.request_arrived(zone, self.now)
        self.world.arrive(claim)
        self.requests.append(Request(zone, claim))

    @precondition(lambda self: not self.ledger.zones)
    @rule(count=st.integers(1, CAPACITY))
    def arrive_before_the_first_zone(self, count):
        request = Request(None, None, running=True)
        self.requests.append(request)
        self._grow(request, min(count, self.free))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(1, CAPACITY), hits=st.integers(0, 6))
    def grow(self, data, count, hits):
        """A request is admitted or goes on: it hits its zone's cache and takes new blocks."""
        self._admit(data, data.draw(st.sampled_from(self.requests)), count, hits)

    def _admit(self, data, request, count, hits):
        zone, claim = request.zone, request.claim
        takeable = self.world.takeable(claim)
        if zone is not None and count > takeable:
            assert self.ledger.wait_reason(zone, count, self.free) == self.world.wait_reason(claim, count)
            self._saw(f"waits: {self.world.wait_reason(claim, count)}")
            if preemption.is_entitled(zone, count):
                self._recall(zone, claim, count, spare=request)
        count = min(count, self.world.takeable(claim))
        if zone is not None:
            hits = min(hits, count, len(claim.cached))
            blocks = data.draw(st.permutations(claim.cached))[:hits] if hits else []
            self.ledger.reuse(zone, blocks)
            self.world.reuse(claim, blocks)
            request.blocks += blocks
            count -= hits
            assert self.world.takeable(claim) >= count, "what was allowed with its hits is allowed after them"
        request.running = True
        self._grow(request, count)

    def _grow(self, request, count):
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
                assert quiet or entitled, "I7: an active zone pays for somebody's surplus"
        assert self.free >= count, "what may be taken can be taken"
        blocks = sorted(self.world.free)[:count]
        if zone is not None:
            self.ledger.take(zone, blocks)
        self.world.take(claim, blocks)
        request.blocks += blocks

    def _recall(self, zone, claim, count, spare):
        """I2 in full: within one step an entitled zone gets its blocks, from whoever runs above their reservation."""
        assert self.world.recallable_by_force(claim) >= count, "promises add up to no more than there is"
        while self.world.takeable(claim) < count:
            running = [request for request in self.requests if request.running]
            index = preemption.choose_victim([request.zone for request in running], zone, count)
            assert index is not None, "I2: a promise was not kept"
            victim = running[index]
            assert victim is not spare
            self._check_victim(victim, running, zone, count)
            self._saw("preempted: " + ("no zone" if victim.zone is None else "recall"))
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

    @precondition(lambda self: any(request.running and request.zone for request in self.requests))
    @rule(data=st.data())
    def compact(self, data):
        """S3: without a right to more, a zone's own youngest request yields."""
        running = [request for request in self.requests if request.running]
        zone = data.draw(st.sampled_from([request.zone for request in running if request.zone]))
        count = CAPACITY + 1
        index = preemption.choose_victim([request.zone for request in running], zone, count)
        own = [request for request in running if request.zone is zone]
        assert running[index] is own[-1]
        self._preempt(own[-1])

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), kept=st.integers(0, CAPACITY))
    def end(self, data, kept):
        self._end(data.draw(st.sampled_from(self.requests)), kept)

    def _end(self, request, kept):
        self.requests.remove(request)
        self._let_go(request, kept)
        if request.zone is not None:
            self.tenancy.request_finished(request.zone, self.now)
            self.world.now = self.now
            self.world.end(request.claim)
            if request.zone.grace:
                self._give_grace_if_known(request.zone)

    def _give_grace_if_known(self, zone):
        if self.ledger.zones.get(zone.spec.tenant) is zone:
            self._give_grace(zone)

    @precondition(lambda self: self.ledger.cached_blocks)
    @rule(data=st.data())
    def reset_a_block(self, data):
        claim = data.draw(st.sampled_from([claim for claim in self.world.claims.values() if claim.cached]))
        block = data.draw(st.sampled_from(claim.cached))
        zone = self.ledger.zones[claim.tenant]
        self.ledger.evict_block(zone, block, "reset")
        self._evicted([(zone, [block])])
        claim.cached.remove(block)
        claim.hit.discard(block)
        self.world.free.add(block)
        self.world.note_evicted(claim)
        self._check_reasons([(claim.tenant, [block], "reset")])

    # Time

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 5.0, 6.0, 20.0]))
    def wait(self, seconds):
        self.now += seconds
        before = {zone: zone.counters.evicted.get("due", 0) for zone in self.ledger.zones.values()}
        evictions = self.tenancy.upkeep(self.now, self.free)
        idle = by_tenant(self.world.let_time_pass(self.now))
        due = {zone.spec.tenant: zone.counters.evicted.get("due", 0) - count for zone, count in before.items()}
        remaining = list(self._evicted(evictions))
        remaining = self._take_off(remaining, {tenant: len(blocks) for tenant, blocks in idle.items()}, idle)
        self._check_sums_of_loans(exact=False)
        remaining = self._give_back_due(remaining, due)
        self._check_overdue()
        self._check_reclaim(remaining)
        self._preempt_past_grace()

    def _take_off(self, remaining, counts, expected):
        """The evictions at the front that time itself brought must be what the reference says."""
        got = {}
        while sum(counts.values()) > 0:
            tenant, blocks = remaining.pop(0)
            counts[tenant] -= len(blocks)
            got.setdefault(tenant, []).extend(blocks)
        assert got == expected
        return remaining

    def _give_back_due(self, remaining, due):
        """Surplus that stood on loans whose time is over; which loans these are is the book's to say."""
        while sum(due.values()) > 0:
            tenant, blocks = remaining.pop(0)
            claim = self.world.claims[tenant]
            assert len(blocks) <= claim.above(claim.reserved), "I7: what is within the reservation is nobody's loan"
            assert claim.lose(len(blocks)) == blocks
            self.world.free |= set(blocks)
            self.world.note_evicted(claim)
            due[tenant] -= len(blocks)
            self._saw("evicted: due")
        return remaining

    def _check_overdue(self):
        """A loan past its time stands on nothing but blocks in use, and holds its borrower to what is its own."""
        owed = {}
        for loan in self.tenancy.loans:
            if loan.due is not None and loan.due <= self.now:
                owed[loan.borrower] = owed.get(loan.borrower, 0) + loan.blocks
                self._saw("overdue")
        for tenant, zone in self.ledger.zones.items():
            claim = self.world.claims[tenant]
            assert zone.overdue == owed.get(zone, 0)
            claim.overdue = zone.overdue
            if zone.overdue:
                assert len(claim.in_use) >= claim.reserved + zone.overdue

    def _check_reclaim(self, remaining):
        marks = Watermarks() if self.config is None else self.config.pool.watermarks
        paid = []
        if self.free < int(marks.low * CAPACITY):
            paid = self.world.pay_for_nobody(int(marks.high * CAPACITY))
        assert remaining == [(tenant, blocks) for tenant, blocks, _ in paid]
        if paid:
            self._saw("evicted: reclaim")
        self._reasons()

    def _preempt_past_grace(self):
        """As the adapter does, until nobody stands on a loan that is past its grace."""
        while borrowers := self.tenancy.past_grace():
            borrower = borrowers[0]
            running = [request for request in self.requests if request.running]
            index = preemption.youngest([request.zone for request in running], borrower)
            assert index is not None, "a loan that is past its grace stands on running requests"
            self._saw("preempted: due")
            self._preempt(running[index])
            self.tenancy.loans.settle(self.free)
            payments = self._evicted(self.tenancy.collect_due())
            self._give_back_due(payments, {tenant: len(blocks) for tenant, blocks in by_tenant(payments).items()})
            self._check_overdue()
            self._reasons()

    @rule()
    def settle_the_book(self):
        self.tenancy.loans.settle(self.free)
        self._check_sums_of_loans(exact=True)
        assert self._reasons() == {}, "the book takes nothing from anybody"

    def _check_sums_of_loans(self, *, exact):
        lent, borrowed = {}, {}
        for loan in self.tenancy.loans:
            assert loan.blocks > 0
            assert loan.lender is not loan.borrower
            lent[loan.lender] = lent.get(loan.lender, 0) + loan.blocks
            borrowed[loan.borrower] = borrowed.get(loan.borrower, 0) + loan.blocks
        if exact:
            assert sum(lent.values()) == self.world.lent_in_all()
            for zone, blocks in lent.items():
                claim = self.world.claims[zone.spec.tenant]
                assert blocks <= claim.reserved - claim.held, "lends more than it leaves unused"
            for zone, blocks in borrowed.items():
                claim = self.world.claims[zone.spec.tenant]
                assert blocks <= claim.held - claim.reserved, "borrows more than its surplus"
        if lent:
            self._saw("loans stand")

    # What holds after every step

    @invariant()
    def every_block_is_where_the_reference_has_it(self):
        world = self.world
        self.ledger.check(len(world.free), len(world.without_zone), CAPACITY)
        assert set(self.ledger.zones) == set(world.claims)
        parts = [world.free, world.without_zone]
        for tenant, zone in self.ledger.zones.items():
            claim = world.claims[tenant]
            owned = {block for block, owner in enumerate(self.ledger.owner) if owner is zone}
            assert list(zone.cached) == claim.cached
            assert owned == claim.in_use | set(claim.cached)
            assert zone.in_use == len(claim.in_use)
            parts += [claim.in_use, set(claim.cached)]
        assert sum(len(part) for part in parts) == CAPACITY
        assert set().union(*parts) == set(range(CAPACITY))

    @invariant()
    def everybody_may_take_what_the_reference_says(self):
        standings = self.ledger.standings
        assert standings.takeable_without_zone(self.free) == self.world.takeable(None)
        for tenant, zone in self.ledger.zones.items():
            assert standings.takeable(zone, self.free) == self.world.takeable(self.world.claims[tenant])

    @invariant()
    def states_are_those_of_the_reference(self):
        for tenant, zone in self.ledger.zones.items():
            claim = self.world.claims[tenant]
            assert (zone.state, zone.quiet, zone.leaving) == (claim.state, claim.quiet, claim.leaving)
            assert (zone.requests, zone.last_active) == (claim.requests, claim.last_active)
            assert (zone.state == "Active") == (zone.requests > 0)
            assert zone.state != "Evicted" or zone.held == 0

    @invariant()
    def requests_hold_blocks_of_their_own_zone(self):
        for request in self.requests:
            assert all(self.ledger.owner[block] is request.zone for block in request.blocks)

    @invariant()
    def nobody_caches_beyond_its_limit(self):
        for zone in self.ledger.zones.values():
            assert zone.held <= max(zone.spec.quota.limit, zone.in_use)

    @invariant()
    def promises_fit_and_bills_only_grow(self):
        assert sum(zone.spec.quota.reserved for zone in self.ledger.zones.values()) <= CAPACITY
        billed = self.tenancy.loans.block_seconds()
        assert all(billed.get(pair, 0) >= before for pair, before in self.billed.items())
        self.billed = billed


TestZoneLives = ZoneLives.TestCase
