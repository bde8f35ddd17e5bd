"""Running requests that lose their turn or are preempted: for which others, how many, and what if none can be."""

from collections import Counter

import pytest

from tenantzone_contract.zone_config.zone_terms import SeatShare
from tenantzone_runtime.zones.model.zone import SeatQuota
from tests.zones.core import declare
from tests.zones.small_engine import SmallEngine, Work, preemptions


class LateEngine(SmallEngine):
    """An engine that can hand out evicted blocks in its next step, and not before."""

    late = 0

    @property
    def free_blocks(self):
        return self.core.free - self.late

    def return_evicted(self, evictions):
        self.late += sum(len(blocks) for _, blocks in evictions)
        super().return_evicted(evictions)

    def step(self):
        made = super().step()
        self.late = 0
        return made


class DeferringEngine(SmallEngine):
    """An engine that frees blocks only when steps in flight are over."""

    def __init__(self, core):
        super().__init__(core)
        self.deferred = []

    @property
    def coming(self):
        return Counter({zone: len(blocks) for zone, blocks in self.deferred})

    def preempt(self, work):
        blocks, work.blocks = work.blocks, []
        self.deferred.append((work.zone, blocks))
        super().preempt(work)
        work.count += len(blocks)

    def land(self):
        for zone, blocks in self.deferred:
            self.core.ledger.release(zone, [], blocks)
        self.deferred.clear()


class LoadingEngine(SmallEngine):
    """An engine in which loads of requests that have blocks and seats are under way."""

    loading = ()
    has_room_to_land = True

    @property
    def landing(self):
        return self.loading if self.has_room_to_land else ()

    @property
    def free_seats(self):
        return super().free_seats - len(self.loading)

    def load(self, zone, count):
        self.core.tenancy.request_arrived(zone, self.core.now)
        self.loading += (Work(zone, 0, blocks=self.core.take(zone, count)),)

    def land(self):
        """Ends all loads, and their requests."""
        for work in self.loading:
            self.core.ledger.release(work.zone, [], work.blocks)
        self.loading = ()


# For running requests


def test_of_two_that_can_not_both_go_on_only_one_yields_though_its_blocks_are_not_there_yet(core):
    """Otherwise both would begin anew, again and again."""
    engine = DeferringEngine(core)
    works = [engine.run(core.zone(name), 50, asks=5) for name in ("one", "other")]
    assert engine.step() == (works, [])
    assert engine.step() == (works[1:], [])
    assert engine.preempted == works[:1]
    engine.land()
    assert engine.step() == ([], [])
    assert engine.preempted == works[:1]
    assert len(works[1].blocks) == 55


def test_who_is_at_its_limit_does_not_wait_for_what_others_let_go(core):
    """Other, busy zones free something in each step."""
    engine = DeferringEngine(core)
    capped, busy = core.zone("capped", limit=10), core.zone("busy")
    old, young = engine.run(capped, 5, asks=1), engine.run(capped, 5)
    for _ in range(4):
        engine.land()
        engine.deferred.append((busy, core.take(busy, 5)))
        engine.step()
    assert engine.preempted == [young]
    assert len(old.blocks) == 6


def test_who_runs_does_not_wait_for_what_is_promised_to_others_when_it_comes(core):
    engine = DeferringEngine(core)
    core.zone("promised", reserved=60)
    work = engine.run(core.zone("one"), 50, asks=5)
    engine.deferred.append((busy := core.zone("busy"), core.take(busy, 50)))
    engine.step()
    engine.step()
    assert engine.preempted == [work]


def test_who_waits_does_not_begin_in_place_of_one_of_its_zone_that_runs_and_can_not_go_on(core):
    """When a limit is lowered, each request keeps what it may need at its longest: a waiting one may have more."""
    engine = DeferringEngine(core)
    zone = core.zone("one", limit=20)
    short = engine.run(zone, 4, asks=1, peak=5)
    engine.deferred.append((zone, core.take(zone, 4)))
    core.apply(declare("one", limit=1))
    long = engine.wait(zone, 2, peak=12)
    for _ in range(3):
        assert engine.step() == ([short], [])
    assert zone.wait_reason == "limit"
    engine.land()
    assert engine.step() == ([], [long])
    assert (len(short.blocks), engine.preempted) == (5, [])


def test_no_zone_gives_up_a_seat_again_and_again_for_one_kept_waiting_by_its_own_zone(core):
    """As long as the load was in progress, burst's request was sent back in every other step."""
    engine = LoadingEngine(core, seats=4)
    acme, burst = core.zone("acme", limit=10, seats=SeatQuota(reserved=3)), core.zone("burst")
    held_back = engine.run(acme, 4, asks=5)
    engine.load(acme, 2)
    for _ in range(2):
        engine.run(burst, 1)
    work = engine.wait(acme, 1)
    for _ in range(6):
        assert engine.step()[0] == [held_back]
    assert len(engine.preempted) == 1, "before the first step this is unknown"
    assert len(engine.running) == 3
    core.apply(declare("acme", limit=20, seats=SeatShare(reserved=3)), declare("burst"))
    assert work in engine.step()[1]


def test_no_request_yields_to_one_kept_waiting_by_its_own_zone(core):
    """No request could use its blocks while the load is in progress."""
    engine = LoadingEngine(core)
    acme, burst = core.zone("acme", reserved=20, limit=20), core.zone("burst")
    held_back = engine.run(acme, 4, asks=15)
    engine.load(acme, 4)
    engine.run(burst, 88)
    engine.step()
    work = engine.wait(acme, 12)
    for _ in range(3):
        assert engine.step() == ([held_back], [])
    assert (engine.preempted, acme.wait_reason) == ([], "limit")
    engine.end(held_back)
    assert engine.step() == ([], [work])


@pytest.mark.parametrize("loads", ["acme", "burst"])
def test_who_can_not_go_on_does_not_wait_for_a_load_that_waits_for_its_end(core, loads):
    """Such a load lacks, for instance, the room for its image in the encoder that this request holds."""
    engine = LoadingEngine(core)
    core.zone("acme", reserved=40, limit=40), core.zone("burst")
    work = engine.run(core.ledger.zones["acme"], 10, asks=5)
    engine.load(core.ledger.zones[loads], 26)
    core.hold(core.zone("calm"), in_use=64)
    for _ in range(2):
        assert engine.step() == ([work], [])
    engine.has_room_to_land = False
    engine.step()
    assert engine.preempted == [work]


def test_where_nothing_runs_and_blocks_are_coming_no_zone_is_lent_what_others_wait_for(core):
    """Otherwise requests that share most of their blocks would begin in turns, and their zone would let go of none."""
    engine = DeferringEngine(core)
    gold, burst = core.zone("gold", reserved=40), core.zone("burst")
    engine.deferred.append((burst, core.take(burst, 90)))
    entitled, sharing = engine.wait(gold, 30), engine.wait(burst, 1, shared=80)
    for _ in range(3):
        assert engine.step() == ([], [])
    assert (gold.wait_reason, burst.wait_reason) == ("in_use", "reserved")
    engine.land()
    assert engine.step() == ([], [entitled, sharing])


def test_a_request_that_can_not_go_on_and_for_which_none_can_yield_lets_go_of_its_own_blocks(core, engine):
    """Others could wait for them for ever. No running request uses burst's blocks, so none is left to preempt."""
    acme = core.zone("acme", reserved=40)
    work = engine.run(acme, 30, asks=10)
    core.hold(core.zone("burst"), in_use=70)
    assert engine.step() == ([work], [])
    assert engine.step() == ([], [])
    assert (engine.preempted, acme.in_use, acme.counters.preemptions) == ([work], 0, 1)
    assert preemptions(core) == [("acme", "own", "acme")]


def test_what_requests_of_one_zone_will_ask_for_one_after_the_other_is_predicted_together(core, engine):
    capped = core.zone("capped", limit=17)
    works = [engine.run(capped, 5, asks=1), engine.run(capped, 5, asks=2), engine.run(capped, 5)]
    engine.predicted = works[:2]
    assert engine.step() == ([], []), "each alone would have its blocks"
    assert engine.preempted == [works[2]]
    assert [len(work.blocks) for work in works] == [6, 7, 0]


def test_what_requests_of_other_zones_will_ask_for_is_predicted_apart(core, engine):
    zones = core.zone("one", limit=12), core.zone("other", limit=12)
    works = [engine.run(zone, 5, asks=asks) for asks in (2, 0) for zone in zones]
    engine.predicted = works[:2]
    assert engine.step() == ([], [])
    assert engine.preempted == []


def test_a_running_request_that_is_turned_down_is_helped_before_the_next_step(core, engine):
    capped = core.zone("capped", limit=10)
    old, young = engine.run(capped, 5), engine.run(capped, 5)
    engine.arbiter.begin_step()
    engine.arbiter.turned_down(old)
    engine.arbiter.end_step()
    old.count = 1
    assert engine.step() == ([], [])
    assert (len(old.blocks), engine.preempted) == (6, [young])


def test_each_preemption_counts_for_the_zone_that_yields(core, engine):
    one, other, burst = core.zone("one", reserved=50), core.zone("other", reserved=50), core.zone("burst")
    for _ in range(2):
        engine.run(burst, 50)
    for zone in (one, other):
        engine.wait(zone, 50)
    engine.step()
    assert [zone.counters.preemptions for zone in (one, other, burst)] == [0, 0, 2]


# Loans past their grace


@pytest.fixture
def past_its_grace(core):
    """A zone that runs two requests on a loan of 20 blocks past its grace.

    A second zone caches `cached` blocks on the reservation of a third one, which lends to both.
    """

    def make(cached):
        core.zone("lender", reserved=20, quiet=True, max_loan=5.0, grace=1.0)
        core.zone("other", reserved=40, quiet=True)
        core.zone("busy", reserved=40, in_use=40)
        engine = SmallEngine(core)
        borrower = core.zone("borrower")
        works = [engine.run(borrower, 10), engine.run(borrower, 10)]
        core.zone("cache", priority=5, cached=cached, in_use=40 - cached)
        for now in (0.0, 5.0):
            core.upkeep(now)
        core.now = 6.0
        assert borrower.overdue == 20
        assert core.tenancy.past_grace() == [borrower]
        return engine, borrower, works

    return make


def test_before_requests_yield_for_a_loan_past_its_grace_what_others_merely_cache_covers_it(core, past_its_grace):
    engine, borrower, works = past_its_grace(cached=20)
    assert engine.step() == ([], [])
    assert (engine.running, engine.preempted, borrower.overdue) == (works, [], 0)
    assert core.ledger.zones["cache"].counters.evicted == {"due": 20}
    assert core.free == 20


def test_where_that_covers_a_part_no_more_requests_yield_than_the_rest_takes(core, past_its_grace):
    engine, borrower, works = past_its_grace(cached=10)
    assert engine.step() == ([], [])
    assert (engine.running, engine.preempted, borrower.overdue) == (works[:1], works[1:], 0)
    assert core.ledger.zones["cache"].counters.evicted == {"due": 10}


# Without a seat


def test_who_waits_for_a_seat_waits_for_blocks_too_if_what_it_was_promised_is_not_there(core):
    engine = SmallEngine(core, seats=0)
    acme, full, burst = core.zone("acme", reserved=40), core.zone("full", reserved=20), core.zone("burst")
    core.hold(burst, in_use=80)
    core.hold(full, in_use=20)
    for zone in (acme, full, burst):
        engine.wait(zone, 40)
    assert engine.step() == ([], [])
    assert [(zone.wait_reason, zone.denied) for zone in (acme, full, burst)] == [("in_use", 40), (None, 0), (None, 0)]


# Room for waiting requests


def test_a_request_may_have_all_blocks_if_nothing_else_runs_whatever_headroom_is_asked_for(core):
    engine = SmallEngine(core, headroom=10)
    work = engine.wait(core.zone("burst"), 100)
    assert engine.step() == ([], [work])


def test_others_caches_make_room_for_a_request_up_to_its_peak_though_the_limit_is_lower_by_now(core, engine):
    lead = core.zone("lead", cached=90)
    work = engine.wait(core.zone("capped", limit=20), 25, peak=25)
    assert engine.step() == ([], [work])
    assert lead.counters.evicted == {"relief": 15}


def test_a_zone_that_reclaimed_surplus_is_not_admitted_before_the_engine_can_hand_the_blocks_out(core):
    engine = LateEngine(core)
    lead = core.zone("lead", cached=90)
    engine.run(core.zone("busy"), 10)
    work = engine.wait(core.zone("burst"), 50)
    assert engine.step() == ([], [])
    assert lead.counters.evicted == {"relief": 50}
    assert engine.step() == ([], [work])


def test_what_a_request_that_was_sent_back_asked_for_is_not_predicted_any_more(core, engine):
    capped = core.zone("capped", limit=40)
    young = engine.run(capped, 2, asks=20, rank=2)
    old, middle = engine.run(capped, 10, asks=10), engine.run(capped, 5, rank=1)
    engine.predicted = [young, old]
    assert engine.step() == ([], [])
    assert engine.preempted == [young]
    assert middle in engine.running


def test_who_waits_for_a_seat_only_is_short_of_no_blocks(core):
    engine = SmallEngine(core, seats=0)
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    core.hold(burst, in_use=100)
    engine.wait(acme, 40)
    engine.step()
    assert acme.short == 40
    core.release(burst, dropped=100)
    engine.step()
    assert (acme.wait_reason, acme.short) == (None, 0)


@pytest.mark.parametrize("behind", [[], [10]])
def test_who_has_no_seat_gets_its_blocks_when_what_it_waited_for_besides_is_there(core, behind):
    """No event announces that: a tier has answered, or a grammar is compiled."""
    engine = SmallEngine(core, seats=1)
    acme = core.zone("acme", reserved=90)
    borrower = engine.run(core.zone("burst"), 20)
    work = engine.wait(acme, 90, waits_for_else=True)
    for count in behind:
        engine.wait(acme, count)
    for _ in range(3):
        assert engine.step() == ([], [])
    assert engine.preempted == []
    work.waits_for_else = False
    assert engine.step() == ([], [work])
    assert engine.preempted == [borrower]


def test_no_request_yields_to_one_that_was_denied_and_waits_for_something_else_since(core):
    engine = SmallEngine(core, seats=5)
    acme, burst = core.zone("acme", reserved=50), core.zone("burst")
    work = engine.wait(acme, 40)
    engine.arbiter.begin_step()
    assert engine.arbiter.admit_next() is work
    engine.arbiter.turned_down(work)
    engine.arbiter.end_step()
    engine.run(burst, 80)
    work.waits_for_else = True
    for _ in range(4):
        assert engine.step() == ([], [])
    assert engine.preempted == []


@pytest.mark.parametrize("headroom", [0, 1])
def test_no_request_yields_to_one_that_can_not_be_admitted_yet_for_another_reason(core, headroom):
    engine = SmallEngine(core, headroom=headroom)
    acme = core.zone("acme", reserved=40)
    engine.run(core.zone("burst"), 100)
    engine.wait(acme, 40, waits_for_else=True)
    assert engine.step() == ([], [])
    assert (engine.preempted, acme.wait_reason) == ([], None)


def test_a_reservation_that_is_raised_counts_for_a_request_that_waits_already(core, engine):
    core.apply(declare("acme"), declare("burst"))
    acme, burst = core.ledger.zones.values()
    borrowers = [engine.run(burst, 50), engine.run(burst, 50)]
    work = engine.wait(acme, 30)
    engine.seats = 2
    engine.step()
    core.apply(declare("acme", reserved=40), declare("burst"))
    assert engine.step() == ([], [work])
    assert engine.preempted == borrowers[1:]


def test_of_zones_that_lack_blocks_and_have_no_seat_some_are_looked_at_before_each_step(core):
    engine = SmallEngine(core, seats=0)
    zones = [core.zone(f"zone-{number}", reserved=2) for number in range(40)]
    borrowed = core.zone("burst")
    core.hold(borrowed, in_use=100)
    for zone in zones:
        engine.wait(zone, 2)
    engine.step()
    assert all(zone.short == 2 for zone in zones)
    core.release(borrowed, dropped=100)
    short = []
    for _ in range(4):
        engine.step()
        short.append(sum(zone.short > 0 for zone in zones))
    assert short == [24, 8, 0, 0]


def test_predicted_needs_beyond_the_reservation_add_up(core, engine):
    core.zone("lead", reserved=40)
    burst = core.zone("burst")
    works = [engine.run(burst, 16, asks=5) for _ in range(3)]
    core.tenancy.request_arrived(core.ledger.zones["lead"], 0.0)
    engine.predicted = works
    assert engine.step() == ([], [])
    assert engine.preempted == [works[2]]


def test_what_was_kept_for_a_request_that_is_sent_back_is_there_for_others(core, engine):
    acme, lead, burst = core.zone("acme", reserved=20), core.zone("lead", reserved=40), core.zone("burst")
    young, old = engine.run(acme, 2, asks=2, rank=1), engine.run(acme, 16, asks=4)
    engine.run(burst, 42)
    engine.predicted = [young, old]
    work = engine.wait(lead, 37)
    assert engine.step() == ([], [work])
    assert engine.preempted == [young]


@pytest.mark.parametrize(("asks", "left"), [(2, 1), (4, 3)])
def test_what_was_kept_for_who_waits_behind_one_of_its_zone_that_runs_is_there_for_others(core, engine, asks, left):
    """The running request takes it, or is to have it before the next step."""
    acme, calm = core.zone("acme", reserved=40), core.zone("calm", reserved=20)
    first, other = engine.run(acme, 10, asks=asks), engine.run(calm, 10, asks=left)
    core.hold(core.zone("burst"), in_use=77)
    engine.wait(acme, 2)
    assert engine.step() == ([first] if asks == 4 else [], [])
    assert (len(other.blocks), core.free) == (10 + left, 0)


def test_the_last_block_which_is_kept_for_two_is_there_for_one_of_them(core, engine):
    """A request that was not predicted took the other one."""
    acme, calm = core.zone("acme", reserved=40), core.zone("calm", reserved=20)
    engine.run(acme, 10, asks=1)
    engine.predicted = [engine.run(zone, 10, asks=1) for zone in (acme, calm)]
    core.hold(core.zone("burst"), in_use=68)
    assert engine.step() == (engine.predicted[:1], [])
    assert core.free == 0


def test_no_zone_loses_a_turn_for_more_than_a_waiting_one_needs(core, engine):
    zones = [core.zone(name, reserved=20) for name in ("acme", "calm", "lead")]
    works = [engine.run(zone, 5, asks=asks) for zone, asks in zip(zones, (0, 1, 5), strict=True)]
    core.hold(core.zone("burst"), in_use=75)
    work = engine.wait(zones[0], 2, shared=3)
    engine.running.reverse()
    assert engine.step() == ([], [work])
    assert [len(work.blocks) for work in works] == [5, 6, 10]
