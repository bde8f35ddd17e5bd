"""Random lives of zones, compared with the reference after every step, with the invariants checked.

The machine makes the calls that an engine's adapter makes: takes blocks for requests, hits caches, lets go, preempts,
reloads, restarts. ``reference.World`` says what must come of it.
"""

import sys

from hypothesis import settings, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenantzone_contract.config import ConfigError
from tenantzone_runtime.zones import preemption
from tests.zones.configs import CAPACITY, TENANTS, configs, registered_terms, terms_of
from tests.zones.lives import Request, by_tenant
from tests.zones.lives_counted import LivesCounted


class ZoneLives(LivesCounted, RuleBasedStateMachine):
    lived = 0
    """How many there were: a deep run takes minutes, and tells where it is (`pytest -s`)."""

    def teardown(self):
        ZoneLives.lived += 1
        if settings().max_examples > 1000 and ZoneLives.lived % 500 == 0:
            print(f"{ZoneLives.lived} lives of zones", file=sys.stderr)
        # Hypothesis then looks for lives in which much happens.
        target(float(len(self.seen)), label="different things that happened")

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
            if self.unknown is None:
                assert zone is None
                return
            self._saw("auto-registered")
            terms = registered_terms(self.unknown, tenant)
            if claim is None:
                claim = self.world.add(tenant, **terms)
            else:
                self.world.respec(claim, **terms)
            self.world.give_reservations()
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
        self._grow(request, min(count, self.free), growing=False)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(1, CAPACITY), hits=st.integers(0, 6))
    def grow(self, data, count, hits):
        """A request is admitted or goes on: it hits its zone's cache and takes new blocks."""
        self._admit(data, data.draw(st.sampled_from(self.requests)), count, hits)

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

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 6.0, 10.0, 20.0]))
    def wait(self, seconds):
        self.pass_time(seconds)

    @precondition(lambda self: any(claim.cached for claim in self.world.claims.values()))
    @rule(data=st.data())
    def fall_silent(self, data):
        """A zone's requests all end, and time passes until it is quiet, while others go on."""
        claim = data.draw(st.sampled_from([claim for claim in self.world.claims.values() if claim.cached]))
        for request in [request for request in self.requests if request.claim is claim]:
            self._end(request, CAPACITY)
        if claim.evict_after is None:
            self.pass_time(claim.after)
        for _ in range(data.draw(st.integers(0, 3)) if claim.release is not None else 0):
            self.pass_time(claim.release[1])

    @rule()
    def end_a_step(self):
        self.tenancy.end_step()

    @rule()
    def settle_the_book(self):
        self.tenancy.loans.settle(self.free)
        self._check_sums_of_loans(exact=True)
        assert self._reasons() == {}, "the book takes nothing from anybody"

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
        for growing in (False, True):
            for zone in (None, *self.ledger.zones.values()):
                claim = None if zone is None else self.world.claims[zone.spec.tenant]
                expected = self.world.takeable(claim, growing=growing)
                assert standings.takeable(zone, self.free, growing=growing) == expected

    @invariant()
    def states_are_those_of_the_reference(self):
        for tenant, zone in self.ledger.zones.items():
            claim = self.world.claims[tenant]
            assert (zone.spec.quota.reserved, zone.spec.weight) == (claim.reserved, claim.weight)
            if claim.auto and claim.reserved < claim.wanted:
                self._saw("awaits a reservation")
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
    def counters_only_grow_and_agree(self):
        self.check_counters()

    @invariant()
    def promises_fit(self):
        assert sum(zone.spec.quota.reserved for zone in self.ledger.zones.values()) <= CAPACITY


TestZoneLives = ZoneLives.TestCase
