"""Random lives of zones, with the invariants checked after every step.

A request here takes blocks, hits its zone's cache, grows, and ends, by the same calls that the vLLM adapter makes. What
a correct engine must look like afterwards is worked out anew from plain sets of block ids.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from tenantzone_runtime.zones import configure, preemption, states
from tenantzone_runtime.zones.eviction import make_room, trim_to_limit
from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.zone import IdleTimes, Zone, ZoneSpec

CAPACITY = 24
TENANTS = ("acme", "burst", "calm", "dusk")


@dataclass(eq=False)
class Request:
    zone: Zone
    blocks: list[int] = field(default_factory=list)


@st.composite
def spec_lists(draw):
    """Zones whose reservations fit the capacity."""
    left = CAPACITY
    specs = []
    for tenant in draw(st.lists(st.sampled_from(TENANTS), unique=True)):
        reserved = draw(st.integers(0, left))
        left -= reserved
        quota = Quota(
            reserved=reserved,
            limit=draw(st.integers(reserved, CAPACITY)),
            lendable=draw(st.integers(0, reserved)),
        )
        idle = IdleTimes(after=draw(st.sampled_from([0, 5])), evict_after=draw(st.sampled_from([None, 10])))
        specs.append(ZoneSpec(tenant, tenant, 1, draw(st.integers(-1, 1)), quota, idle))
    return specs


class ZoneLives(RuleBasedStateMachine):
    requests = Bundle("requests")

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(CAPACITY)
        self.free = set(range(CAPACITY))
        self.running: list[Request] = []
        self.now = 0.0

    def _evicted(self, evictions):
        for zone, blocks in evictions:
            in_use = {block for request in self.running for block in request.blocks}
            assert not in_use & set(blocks), "I6: a block in use was evicted"
            assert not self.free & set(blocks)
            self.free |= set(blocks)
            states.blocks_evicted(zone)
            configure.discard_if_gone(self.ledger, zone)

    @rule(specs=spec_lists())
    def configure(self, specs):
        self._evicted(configure.apply(self.ledger, specs, self.now))
        assert {zone.spec.tenant for zone in self.ledger.zones.values() if not zone.leaving} == {
            spec.tenant for spec in specs
        }

    @rule(target=requests, tenant=st.sampled_from(TENANTS))
    def arrive(self, tenant):
        zone = self.ledger.zones.get(tenant)
        if zone is None or zone.leaving:
            return None
        states.request_arrived(self.ledger, zone, self.now)
        assert zone.state == "Active"
        request = Request(zone)
        self.running.append(request)
        return request

    @rule(request=requests, count=st.integers(1, CAPACITY))
    def grow(self, request, count):
        if request not in self.running:
            return
        zone = request.zone
        available = self.ledger.takeable(zone, len(self.free))
        self._check_promise(zone, available)
        if count > available:
            return
        held_before = {other: other.held for other in self.ledger.zones.values()}
        entitled = preemption.is_entitled(zone, count)
        self._evicted(make_room(self.ledger, zone, count, len(self.free)))
        self._check_who_paid(zone, held_before, entitled=entitled)
        assert len(self.free) >= count, "what may be taken can be taken"
        taken = [self.free.pop() for _ in range(count)]
        self.ledger.take(zone, taken)
        request.blocks += taken

    def _check_promise(self, zone, available):
        """I2: up to its reservation a zone gets whatever others' requests do not stand on."""
        entitlement = zone.spec.quota.reserved - zone.in_use
        in_use_elsewhere = sum(other.in_use for other in self.ledger.zones.values() if other is not zone)
        within_elsewhere = sum(
            max(0, min(other.held, other.spec.quota.reserved) - other.in_use)
            for other in self.ledger.zones.values()
            if other is not zone and not other.quiet
        )
        obtainable = CAPACITY - zone.in_use - in_use_elsewhere - within_elsewhere
        quiet_elsewhere = sum(
            min(len(other.cached), max(0, other.spec.quota.reserved - other.spec.quota.lendable - other.in_use))
            for other in self.ledger.zones.values()
            if other is not zone and other.quiet
        )
        assert available >= min(entitlement, obtainable - quiet_elsewhere)

    def _check_who_paid(self, zone, held_before, *, entitled):
        """I7: nobody is cut below min(held, reserved), or what a quiet zone keeps, for another."""
        for other, before in held_before.items():
            if other is zone or other.held == before:
                continue
            quota = other.spec.quota
            floor = quota.reserved - quota.lendable if other.quiet else quota.reserved
            assert other.held >= min(before, floor)
            assert other.quiet or entitled, "an active zone gave up cache for somebody's surplus"

    @rule(request=requests, count=st.integers(1, CAPACITY))
    def hit(self, request, count):
        if request not in self.running:
            return
        zone = request.zone
        count = min(count, len(zone.cached), self.ledger.takeable(zone, len(self.free)))
        hits = list(zone.cached)[:count]
        self.ledger.reuse(zone, hits)
        request.blocks += hits

    @rule(request=requests, kept=st.integers(0, CAPACITY))
    def end(self, request, kept):
        if request not in self.running:
            return
        self.running.remove(request)
        zone = request.zone
        kept = 0 if zone.leaving else kept
        dropped = request.blocks[kept:]
        self.ledger.release(zone, request.blocks[:kept], dropped)
        self.free |= set(dropped)
        self._evicted([(zone, trim_to_limit(self.ledger, zone))])
        states.request_finished(zone, self.now)
        configure.discard_if_gone(self.ledger, zone)

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds):
        self.now += seconds
        for zone in list(self.ledger.zones.values()):
            self._evicted([(zone, states.advance(self.ledger, zone, self.now))])

    @rule(request=requests, count=st.integers(1, CAPACITY))
    def recall(self, request, count):
        """Preempting borrowers, a zone within its reservation gets what it asks for: I2 in full."""
        if request not in self.running:
            return
        zone = request.zone
        if not preemption.is_entitled(zone, count):
            return
        while self.ledger.takeable(zone, len(self.free)) < count:
            index = preemption.choose_victim([runner.zone for runner in self.running], zone, count)
            assert index is not None, "a promise that nobody stands on was not kept"
            victim = self.running[index]
            assert victim.zone.in_use > victim.zone.spec.quota.reserved, "a zone within its reservation yielded"
            self.ledger.release(victim.zone, [], victim.blocks)
            self.free |= set(victim.blocks)
            victim.blocks = []
            self.running.remove(victim)
            states.request_finished(victim.zone, self.now)
            configure.discard_if_gone(self.ledger, victim.zone)

    @invariant()
    def every_block_is_counted_once(self):
        self.ledger.check(len(self.free), 0, CAPACITY)
        owned = {block for block, owner in enumerate(self.ledger.owner) if owner is not None}
        assert owned.isdisjoint(self.free)
        assert len(owned) + len(self.free) == CAPACITY

    @invariant()
    def requests_hold_blocks_of_their_own_zone(self):
        for request in self.running:
            assert all(self.ledger.owner[block] is request.zone for block in request.blocks)

    @invariant()
    def nobody_holds_more_than_its_limit(self):
        for zone in self.ledger.zones.values():
            assert zone.leaving or zone.held <= max(zone.spec.quota.limit, zone.in_use)

    @invariant()
    def states_are_true(self):
        for zone in self.ledger.zones.values():
            assert (zone.state == "Active") == (zone.requests > 0)
            assert zone.state != "Evicted" or zone.held == 0


TestZoneLives = ZoneLives.TestCase
TestZoneLives.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
