"""Which requests are admitted, which go on, and which are preempted and for which others."""

import pytest

from tests.zones.core import declare
from tests.zones.small_engine import SmallEngine, preemptions

# Admission


def test_what_fits_is_admitted_and_the_rest_waits_with_a_reason(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    first, second = engine.wait(burst, 50), engine.wait(burst, 20)
    core.tenancy.request_arrived(acme, 0.0)
    assert engine.step() == ([], [first])
    assert engine.step() == ([], [])
    assert burst.wait_reason == "reserved"
    core.tenancy.request_finished(acme, 0.0)
    core.set_quiet(acme)
    assert engine.step() == ([], [second])
    assert burst.wait_reason is None


def test_a_denied_request_without_a_place_for_its_adapter_delays_no_other_behind_it(core, engine):
    acme, busy = core.zone("acme"), core.zone("busy")
    engine.adapter_slots = 1
    engine.run(busy, 60)
    engine.wait(acme, 50, lora=2)
    behind = engine.wait(acme, 20)
    assert engine.step() == ([], [])
    engine.run(busy, 1, lora=1)
    assert engine.step() == ([], [behind])


def test_a_zone_whose_next_request_does_not_fit_delays_no_other(core, engine):
    big, small = core.zone("big"), core.zone("small")
    engine.run(core.zone("busy"), 60)
    engine.wait(big, 50)
    fits = engine.wait(small, 40)
    assert engine.step() == ([], [fits])


def test_without_a_seat_no_zone_is_next_and_nothing_is_evicted_for_any(core):
    engine = SmallEngine(core, seats=1)
    core.zone("lead", cached=80)
    engine.run(core.zone("busy"), 10)
    engine.wait(core.zone("burst"), 50)
    engine.step()
    assert core.events("evicted") == []


def test_an_admitted_request_stays_the_next_one_although_its_room_is_not_there_yet(core, engine, monkeypatch):
    engine.wait(core.zone("one"), 10)
    engine.wait(core.zone("other"), 10)
    engine.arbiter.begin_step()
    first = engine.arbiter.next_front()
    monkeypatch.setattr(engine.arbiter._next.plan, "_begin", lambda: False)
    engine.arbiter.admit(first)
    first.zone.account.charge(1000.0)
    assert engine.arbiter.next_front() is first
    assert engine.arbiter.admit_next() is first


def test_the_next_front_stays_the_same_until_it_is_taken(core, engine):
    engine.wait(core.zone("one"), 10)
    engine.wait(core.zone("other"), 10)
    engine.arbiter.begin_step()
    first = engine.arbiter.admit_next()
    assert engine.arbiter.admit_next() is first
    engine.leave(first)
    assert engine.arbiter.admit_next() is not first


def test_a_request_that_is_turned_down_is_not_next_again_before_the_next_step(core, engine):
    one, other = engine.wait(core.zone("one"), 10), engine.wait(core.zone("other"), 10)
    engine.arbiter.begin_step()
    engine.arbiter.turned_down(one)
    assert engine.step()[1] == [other]
    assert engine.step()[1] == [one]


def test_others_caches_are_evicted_for_who_is_denied_if_that_is_enough(core, engine):
    burst = core.zone("burst")
    lead = core.zone("lead", cached=90)
    work = engine.wait(burst, 50)
    assert engine.step() == ([], [work])
    assert lead.counters.evicted == {"relief": 40}


@pytest.mark.parametrize(("cached", "evicted"), [(90, 26), (25, 0)])
def test_others_caches_are_evicted_if_that_is_enough_with_what_is_kept_for_siblings(core, engine, cached, evicted):
    """For example a running sibling that has no tokens in this step."""
    acme = core.zone("acme", reserved=30)
    core.zone("lead", cached=cached, in_use=90 - cached)
    engine.predicted = [engine.run(acme, 5, asks=20)]
    work = engine.wait(acme, 11)
    engine.arbiter.begin_step()
    assert engine.arbiter.admit_next() is (work if evicted else None)
    assert sum(event.blocks for event in core.events("evicted")) == evicted


def test_headroom_is_needed_next_to_others_and_not_by_an_entitled_zone(core):
    engine = SmallEngine(core, headroom=10)
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50)
    alone = engine.wait(burst, 45)
    assert engine.step()[1] == [alone], "nothing else runs"
    entitled = engine.wait(acme, 50)
    assert engine.step()[1] == [entitled]
    borrows = engine.wait(burst, 3)
    assert engine.step()[1] == []
    engine.end(entitled)
    assert engine.step()[1] == [borrows]


def test_nothing_is_evicted_for_a_request_that_misses_its_headroom_nevertheless(core):
    engine = SmallEngine(core, headroom=10)
    engine.run(core.zone("busy"), 50)
    lead = core.zone("lead", cached=40)
    core.tenancy.request_arrived(lead, 0.0)
    engine.wait(core.zone("burst"), 45)
    assert engine.step() == ([], [])
    assert (len(lead.cached), core.events("evicted")) == (40, [])


# Promises


def test_an_entitled_request_gets_its_blocks_in_the_first_step_from_who_borrows(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    old, young = engine.run(burst, 50), engine.run(burst, 50)
    work = engine.wait(acme, 40)
    assert engine.step() == ([], [work])
    assert (engine.preempted, engine.running) == ([young], [old, work])
    assert preemptions(core) == [("burst", "reclaim", "acme")]


def test_no_request_yields_to_an_entitled_one_where_blocks_can_be_had(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    engine.run(burst, 60)
    core.hold(burst, cached=40)
    work = engine.wait(acme, 40)
    assert engine.step() == ([], [work])
    assert (engine.preempted, burst.counters.evicted) == ([], {"reclaim": 40})


def test_within_its_reservation_no_request_yields(core, engine):
    acme, calm = core.zone("acme", reserved=40), core.zone("calm", reserved=60)
    engine.run(calm, 60)
    engine.run(acme, 30)
    engine.wait(acme, 11)
    assert engine.step() == ([], [])
    assert engine.preempted == []


def test_a_borrower_that_asks_for_one_block_more_than_its_reservation_waits(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    engine.run(burst, 100)
    engine.wait(acme, 41)
    assert engine.step() == ([], [])
    assert acme.wait_reason == "in_use"


def test_two_claims_on_one_borrower_are_both_kept(core, engine):
    one, other, burst = core.zone("one", reserved=50), core.zone("other", reserved=50), core.zone("burst")
    borrowing = [engine.run(burst, 50), engine.run(burst, 50)]
    wanted = [engine.wait(one, 50), engine.wait(other, 50)]
    assert engine.step() == ([], wanted)
    assert engine.preempted == borrowing[::-1]


# Running requests


def test_a_running_request_that_gets_no_blocks_loses_only_its_own_turn(core, engine):
    capped, free = core.zone("capped", limit=10), core.zone("free")
    first = engine.run(capped, 10, asks=1)
    second = engine.run(free, 10, asks=1)
    assert engine.step() == ([first], [])
    assert second.count == 0
    assert engine.preempted == []


def test_before_the_next_step_its_zones_youngest_yields_to_it(core, engine):
    capped = core.zone("capped", limit=10)
    old, young = engine.run(capped, 5, asks=1), engine.run(capped, 5)
    engine.step()
    withheld, admitted = engine.step()
    assert (withheld, admitted, engine.preempted) == ([], [], [young])
    assert len(old.blocks) == 6
    assert preemptions(core) == [("capped", "own", "capped")]


def test_the_youngest_request_waits_again_and_keeps_no_other_from_its_blocks(core, engine):
    capped = core.zone("capped", limit=10)
    engine.run(capped, 5)
    young = engine.run(capped, 5, asks=1)
    engine.step()
    engine.step()
    assert engine.preempted == [young]
    assert (young.count, capped.in_use) == (6, 5)


def test_within_its_reservation_a_running_request_reclaims_what_others_borrow(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    claim = engine.run(acme, 30, asks=10)
    borrower = engine.run(burst, 70)
    assert engine.step()[0] == [claim]
    assert engine.step()[0] == []
    assert (len(claim.blocks), engine.preempted) == (40, [borrower])


def test_predicted_needs_are_met_before_the_step_and_lose_no_turn(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    claim = engine.run(acme, 30, asks=10)
    engine.run(burst, 70)
    engine.predicted = [claim]
    assert engine.step()[0] == []
    assert len(claim.blocks) == 40


def test_a_withheld_request_that_has_ended_is_helped_no_more(core, engine):
    capped = core.zone("capped", limit=10)
    ends = engine.run(capped, 2, asks=5)
    stays = engine.run(capped, 8)
    engine.step()
    engine.end(ends)
    engine.step()
    assert (engine.preempted, engine.running) == ([], [stays])


def test_a_request_in_flight_grows_to_its_peak_past_a_lowered_limit_and_what_comes_after_does_not(core, engine):
    core.apply(declare("acme", limit=30))
    acme = core.ledger.zones["acme"]
    old = engine.run(acme, 20, asks=5, peak=30)
    core.apply(declare("acme", limit=10))
    engine.wait(acme, 1, peak=10)
    assert engine.step() == ([], [])
    assert (len(old.blocks), acme.wait_reason) == (25, "limit")


# Loans past their grace


def test_past_its_grace_a_loan_is_reclaimed_and_no_more_requests_yield_than_it_takes(core, engine):
    lender = core.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=30.0)
    burst = core.zone("burst")
    works = [engine.run(burst, 20) for _ in range(4)]
    core.upkeep(0.0)
    core.upkeep(60.0)
    engine.step()
    assert (burst.overdue, engine.preempted) == (30, []), "in its grace time it goes on"
    core.upkeep(90.0)
    engine.step()
    assert engine.preempted == [works[3], works[2]]
    assert (burst.in_use, burst.overdue) == (40, 0)
    assert {reason for _, reason, _ in preemptions(core)} == {"due"}
    assert lender.spec.quota.reserved == 50


def test_in_its_grace_time_an_overdue_zones_running_request_grows_and_its_waiting_one_waits(core, engine):
    core.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=30.0)
    burst = core.zone("burst")
    work = engine.run(burst, 70, asks=5)
    core.upkeep(0.0)
    core.upkeep(60.0)
    engine.wait(burst, 1)
    assert engine.step() == ([], [])
    assert (len(work.blocks), burst.overdue) == (75, 20)


# Pauses


def test_while_the_engine_is_paused_no_request_yields_and_no_zone_is_next(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    engine.run(burst, 100)
    engine.wait(acme, 40)
    engine.is_open = False
    engine.arbiter.pause()
    assert engine.step() == ([], [])
    assert (engine.preempted, acme.wait_reason) == ([], None)
    engine.is_open = True
    engine.arbiter.pause()
    assert len(engine.step()[1]) == 1


def test_while_the_engine_is_paused_it_is_not_for_blocks_that_zones_wait_and_then_it_is_again(core, engine):
    burst = core.zone("burst")
    engine.run(core.zone("busy"), 100)
    engine.wait(burst, 10)
    reasons = []
    for is_open in (True, False, True):
        engine.is_open = is_open
        engine.arbiter.pause()
        engine.step()
        reasons.append(burst.wait_reason)
    assert reasons == ["in_use", None, "in_use"]


def test_while_the_engine_is_paused_what_runs_may_use_what_waiting_zones_reserve(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    work = engine.run(burst, 60, asks=10)
    engine.wait(acme, 41)
    assert engine.step()[0] == [work]
    work.count = 10
    engine.is_open = False
    engine.arbiter.pause()
    engine.step()
    assert (engine.running, len(work.blocks)) == ([work], 70)


# Nothing runs


def test_if_nothing_runs_and_nothing_fits_unused_blocks_are_lent_until_their_owner_comes(core, engine):
    one, other = core.zone("one", reserved=50), core.zone("other", reserved=50)
    big = [engine.wait(one, 60), engine.wait(other, 60)]
    assert engine.step()[1] == [big[0]]
    assert other.quiet
    assert not one.quiet
    own = engine.wait(other, 10)
    engine.leave(big[1])
    assert engine.step()[1] == [own]
    assert not other.quiet


def test_a_reservation_is_not_lent_while_its_owners_request_could_be_admitted(core, engine):
    acme, burst = core.zone("acme", reserved=50), core.zone("burst")
    engine.wait(burst, 60)
    small = engine.wait(acme, 10)
    assert engine.step()[1] == [small]
    assert not acme.quiet


def test_what_is_never_lent_stays(core, engine):
    core.tenancy.request_arrived(core.zone("acme", reserved=50, lendable=0), 0.0)
    engine.wait(core.zone("burst"), 51)
    assert engine.step() == ([], [])


def test_where_lending_everything_has_helped_no_zone_it_is_not_tried_again_before_something_changes(core, engine):
    acme = core.zone("acme", reserved=50, lendable=0)
    engine.wait(core.zone("burst"), 51)
    engine.step()
    engine.step()
    engine.looked_at = []
    assert engine.step() == ([], [])
    assert engine.looked_at == []
    core.set_quiet(acme)
    core.hold(acme, cached=5)
    engine.step()
    assert engine.looked_at
