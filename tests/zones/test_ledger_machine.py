"""Random history of an engine, compared with the naive model after every step, with the invariants checked.

Requests come and go, configs change, time passes, the engine pauses and restarts. In each step the zone core's own
arbiter decides which requests are admitted, go on and are preempted, and the naive model (``reference.py``) predicts
the result. In the end no more requests arrive, and each must end.
"""

import sys

from hypothesis import settings, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenantzone_runtime.zones.model.zone import EARLY_TENANT
from tenantzone_runtime.zones.resources.seats import own_seats
from tenantzone_runtime.zones.tokens.latency_budget import SITS_OUT_AT_MOST
from tests.zones.configs import CAPACITY, TENANTS, blocks_of, configs, registered_terms, terms_of
from tests.zones.history import Request
from tests.zones.history_at_rest import HistoryAtRest
from tests.zones.history_tokens import BLOCK_TOKENS


@st.composite
def requests(draw):
    prompt = draw(st.integers(1, CAPACITY))
    return Request(
        prompt,
        longest=min(CAPACITY, prompt + draw(st.integers(0, 8))),
        interval=draw(st.integers(1, 2)),
        chunk=draw(st.sampled_from([2, 5, CAPACITY])),
        hits=draw(st.integers(0, 6)),
        shared=draw(st.integers(0, 2)),
        priority=draw(st.integers(0, 2)),
    )


class ZoneLives(HistoryAtRest, RuleBasedStateMachine):
    lived = 0
    """The number of histories so far: a deep run takes minutes, and prints its progress (`pytest -s`)."""

    def teardown(self):
        self.come_to_rest()
        ZoneLives.lived += 1
        if settings().max_examples > 1000 and ZoneLives.lived % 500 == 0:
            print(f"{ZoneLives.lived} history of zones", file=sys.stderr)
        # Hypothesis then looks for histories in which much happens.
        target(float(len(self.seen)), label="different things that happened")

    # Configs

    @initialize(
        config=st.one_of(st.none(), configs(), configs()),
        seats=st.integers(1, 5),
        headroom=st.sampled_from([0, 0, 2, 5]),
        by_priority=st.booleans(),
        step_tokens=st.sampled_from([None, 1000, 200, 64, 24, 7]),
        chunk_blocks=st.sampled_from([0, 0, 1, 2]),
        depth=st.integers(1, 2),
        is_learned=st.booleans(),
    )
    def first_config(self, config, seats, headroom, by_priority, step_tokens, chunk_blocks, depth, is_learned):
        self.seats, self.headroom, self.by_priority = seats, headroom, by_priority
        self.step_tokens, self.depth, self.is_learned = step_tokens, depth, is_learned
        # As in vLLM's adapter: a block that no step can fill is filled by several steps, which may end anywhere.
        chunk_tokens = BLOCK_TOKENS * chunk_blocks
        self.chunk_tokens = chunk_tokens if chunk_tokens and chunk_tokens <= (step_tokens or 0) else 1
        self._start(self.now)
        if config is not None:
            self.reload(config)

    @rule(config=configs())
    def reload(self, config):
        terms = {zone.tenant: terms_of(zone) for zone in config.zones}
        left = CAPACITY
        for term in terms.values():
            if term["reserved"] > min(left, term["limit"]):
                self._saw("a reservation that does not fit")
                term["reserved"] = term["lendable"] = 0
            left -= term["reserved"]
        self._fit_seats(terms)
        evictions = self.tenancy.apply(config, self.now)
        self.tokens.forget_weights()
        self.config = config
        self.model.now = self.now
        self.reload_model(terms)
        self.check_evictions(evictions)
        self._adopt()

    def _fit_seats(self, terms):
        left = self.seats
        for term in terms.values():
            asked, limit = term["seats"]
            limit = None if limit is None else min(self.seats, blocks_of(limit, self.seats, up=True))
            if asked is not None:
                asked = blocks_of(asked, self.seats)
                if asked > min(left, self.seats if limit is None else limit):
                    self._saw("reserves more seats than there are")
                    asked = 0
                left -= asked
            term["seats"] = asked, limit

    def _adopt(self):
        """Gives requests from before the first zone a zone of their own."""
        early = [request for request in self.requests if request.zone is None]
        if not early or not self.ledger.zones:
            return
        self._saw("requests from before zones are adopted")
        zone = self.tenancy.zone_of_early_requests(len(early))
        twin = self.model.add_unbound(EARLY_TENANT)
        for request in early:
            request.zone, request.twin = zone, twin
            self.ledger.take(zone, request.blocks)
            self.model.arrive(twin)
        self.engine.adopt(early)

    @precondition(lambda self: self.config is not None)
    @rule(draw=st.integers(0, 7))
    def restart(self, draw):
        """Restarts the engine with the last config: no blocks are held, and no loans are known."""
        if draw == 0:
            self._start(self.now)
            self.reload(self.config)

    # Requests

    @rule(tenant=st.sampled_from(TENANTS), request=requests())
    def arrive(self, tenant, request):
        twin = self.model.zones.get(tenant)
        zone = self.tenancy.zone_for(tenant, self.now)
        self.model.now = self.now
        if twin is None or twin.leaving:
            if self.unknown is None:
                assert zone is None
                return
            self._saw("auto-registered")
            terms = registered_terms(self.unknown, tenant)
            if twin is None:
                twin = self.model.add(tenant, **terms)
            else:
                self.model.change_spec(twin, **terms)
            self.model.give_reservations()
        assert zone is self.ledger.zones[tenant]
        self._adopt()
        most = self.model.reachable(twin)
        assert self.ledger.totals.reachable(zone) == most
        if request.prompt > most:
            self._saw("too long for its zone")
            return
        if twin.state == "Evicted":
            self._saw("an Evicted zone wakes")
        request.longest = request.peak = min(request.longest, most)
        request.zone, request.twin = zone, twin
        self.tenancy.request_arrived(zone, self.now)
        self.model.arrive(twin)
        self.requests.append(request)
        self.engine.add(request)

    @rule(tenant=st.sampled_from(TENANTS), burst=st.lists(requests(), min_size=2, max_size=4))
    def arrive_together(self, tenant, burst):
        for request in burst:
            self.arrive(tenant, request)

    @precondition(lambda self: self.config is None)
    @rule(request=requests())
    def arrive_before_the_first_config(self, request):
        """The engine has no zones yet, and gives the request blocks as long as there are any."""
        request.running = request.prompt <= self.free
        if request.running:
            request.blocks = sorted(self.model.free)[: request.prompt]
            request.computed = request.to_compute = BLOCK_TOKENS * request.prompt
            self.model.free -= set(request.blocks)
            self.model.before_zones |= set(request.blocks)
        self.requests.append(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), kept=st.integers(0, CAPACITY))
    def abort(self, data, kept):
        self.end(data.draw(st.sampled_from(self.requests)), kept)

    @precondition(lambda self: self.ledger.cached_blocks)
    @rule(data=st.data())
    def reset_a_block(self, data):
        twin = data.draw(st.sampled_from([twin for twin in self.model.zones.values() if twin.cached]))
        block = data.draw(st.sampled_from(twin.cached))
        zone = self.ledger.zones[twin.tenant]
        self.ledger.evict_block(zone, block, "reset")
        self.model.evict_block(twin, block, "reset")
        self.check_evictions([(zone, [block])])

    # Steps and time

    @precondition(lambda self: self.ledger.zones)
    @rule(turns_down=st.integers(0, 9).map(lambda number: number == 0))
    def step(self, turns_down):
        self.make_step(turns_down=turns_down)

    @precondition(lambda self: self.ledger.zones)
    @rule(steps=st.integers(2, 12))
    def make_steps(self, steps):
        for _ in range(steps):
            self.make_step()

    @precondition(lambda self: self.ledger.zones and self.step_tokens is not None)
    @rule(
        tenants=st.lists(st.sampled_from(TENANTS), min_size=2, max_size=3, unique=True),
        prompt=st.integers(4, 10),
        generates=st.booleans(),
        steps=st.sampled_from([6, 12, 3 * SITS_OUT_AT_MOST // 2]),
    )
    def compete(self, tenants, prompt, generates, steps):
        """Gives several zones long prompts to compute, for many steps; one of them may generate meanwhile."""
        for request in list(self.requests):
            self.end(request)
        if generates:
            self.arrive(tenants[0], Request(1, longest=9, interval=6))
        for tenant in tenants:
            self.arrive(tenant, Request(prompt, longest=prompt))
        for _ in range(steps):
            self.make_step()

    @rule()
    def pause_or_resume(self):
        self.turn_round()

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 6.0, 10.0, 20.0]))
    def wait(self, seconds):
        self.pass_time(seconds)

    @precondition(lambda self: any(twin.cached for twin in self.model.zones.values()))
    @rule(data=st.data())
    def fall_silent(self, data):
        """Ends all requests of a zone, and lets time pass until the zone is quiet while others go on."""
        twin = data.draw(st.sampled_from([twin for twin in self.model.zones.values() if twin.cached]))
        for request in [request for request in self.requests if request.twin is twin]:
            self.end(request)
        if twin.evict_after is None:
            self.pass_time(twin.after)
        for _ in range(data.draw(st.integers(0, 3)) if twin.release is not None else 0):
            self.pass_time(twin.release[1])

    @rule()
    def settle_the_book(self):
        self.tenancy.loans.settle(self.free)
        self._check_sums_of_loans(exact=True)
        assert self.reasons() == {}, "the book takes nothing from anybody"

    # Invariants after every step

    @invariant()
    def every_block_is_where_the_reference_has_it(self):
        model = self.model
        self.ledger.check(len(model.free) + len(model.before_zones), CAPACITY)
        assert set(self.ledger.zones) == set(model.zones)
        parts = [model.free, model.before_zones]
        for tenant, zone in self.ledger.zones.items():
            twin = model.zones[tenant]
            owned = {block for block, owner in enumerate(self.ledger.owner) if owner is zone}
            assert list(zone.cached) == twin.cached
            assert owned == twin.in_use | set(twin.cached)
            assert zone.in_use == len(twin.in_use)
            parts += [twin.in_use, set(twin.cached)]
        assert sum(len(part) for part in parts) == CAPACITY
        assert set().union(*parts) == set(range(CAPACITY))

    @invariant()
    def everybody_may_take_what_the_reference_says(self):
        totals = self.ledger.totals
        for tenant, zone in self.ledger.zones.items():
            twin = self.model.zones[tenant]
            for growing in (False, True):
                for peak in (0, CAPACITY):
                    expected = self.model.takeable(twin, growing=growing, peak=peak)
                    assert totals.takeable(zone, self.free, growing=growing, peak=peak) == expected
            assert totals.reachable(zone) == self.model.reachable(twin)

    @invariant()
    def who_backed_off_could_not_be_admitted(self):
        self.check_backed_off()

    @invariant()
    def states_are_those_of_the_reference(self):
        for tenant, zone in self.ledger.zones.items():
            twin = self.model.zones[tenant]
            assert (zone.spec.quota.reserved, zone.spec.weight) == (twin.reserved, twin.weight)
            assert (zone.spec.seats.reserved, zone.spec.seats.limit) == twin.seats
            assert own_seats(zone.spec, self.ledger.totals) == self.model.own_seats(twin)
            if twin.auto and twin.reserved < twin.wanted:
                self._saw("awaits a reservation")
            assert (zone.state, zone.quiet, zone.leaving) == (twin.state, twin.quiet, twin.leaving)
            assert (zone.requests, zone.last_active) == (twin.requests, twin.last_active)
            assert (zone.state == "Active") == (zone.requests > 0)
            assert zone.state != "Evicted" or zone.held == 0

    @invariant()
    def requests_hold_blocks_of_their_own_zone(self):
        for request in self.requests:
            assert all(self.ledger.owner[block] is request.zone for block in request.blocks)

    @invariant()
    def no_zone_caches_beyond_its_limit(self):
        for zone in self.ledger.zones.values():
            assert zone.held <= max(zone.spec.quota.limit, zone.in_use)

    @invariant()
    def who_stores_nothing_keeps_nothing(self):
        for zone in self.ledger.zones.values():
            assert not (zone.spec.retention.no_store and zone.cached)

    @invariant()
    def what_ages_is_what_is_cached(self):
        for zone in self.ledger.zones.values():
            assert (zone.ages is None) == (zone.spec.retention.ttl_seconds is None)
            assert zone.ages is None or set(zone.ages) == set(zone.cached)

    @invariant()
    def counters_only_grow_and_agree(self):
        self.check_counters()

    @invariant()
    def promises_fit(self):
        assert sum(zone.spec.quota.reserved for zone in self.ledger.zones.values()) <= CAPACITY


TestZoneLives = ZoneLives.TestCase
