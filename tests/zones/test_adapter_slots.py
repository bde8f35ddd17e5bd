"""Adapter slots: which request gets one in which step, if some lack a seat or blocks, or are loading."""

import pytest

from tenantzone_runtime.zones.model.zone import SeatQuota
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine, Work

SEATS = 3


@pytest.fixture
def engine():
    engine = SmallEngine(Core(capacity=100), seats=SEATS)
    engine.adapter_slots = 1
    return engine


def test_no_slot_stays_empty_for_a_request_that_finds_no_seat(engine):
    core = engine.core
    lead = core.zone("lead", reserved=30, seats=SeatQuota(reserved=1), grace=100.0)
    gold = core.zone("gold", reserved=30, seats=SeatQuota(reserved=2), grace=1.0)
    burst = core.zone("burst")
    engine.run(lead, 1)  # It uses lead's only seat.
    engine.run(burst, 1)
    engine.run(burst, 1, lora=3)
    without_seat = engine.wait(lead, 1, lora=1)
    engine.step()
    for adapter in (None, 2):
        entitled = engine.wait(gold, 1, lora=adapter)
        for _ in range(SEATS):
            engine.step()
        assert entitled in engine.running
    assert without_seat not in engine.running


def test_an_adapter_keeps_its_slot_while_a_request_with_it_is_being_loaded(engine):
    core = engine.core
    gold, burst = core.zone("gold", reserved=40, grace=0.0), core.zone("burst")
    core.tenancy.request_arrived(burst, core.now)
    engine.loading = (Work(burst, 0, blocks=core.take(burst, 1), lora=3),)
    runs = engine.run(burst, 1, lora=3)
    entitled, behind = engine.wait(gold, 1, lora=1), engine.wait(burst, 1, lora=3)
    for _ in range(2 * TURN_STEPS):
        engine.step()
        assert runs in engine.running
        assert entitled not in engine.running
    assert behind not in engine.running, "no further request begins with the adapter"
    engine.loading = ()
    engine.step()
    assert entitled in engine.running


def test_who_did_not_use_a_slot_that_was_kept_for_it_waits_for_its_grace_again(engine):
    core = engine.core
    gold, burst = core.zone("gold", reserved=40, grace=100.0), core.zone("burst")
    runs = engine.run(burst, 1, lora=3)
    entitled = engine.wait(gold, 1, lora=1)

    def steps_until_preempted():
        for step in range(300):
            core.now += 1.0
            engine.arbiter.begin_step()
            is_running = runs in engine.running
            engine.arbiter.end_step()
            if not is_running:
                return step
        raise AssertionError("the request is never preempted")

    assert steps_until_preempted() >= 99
    entitled.has_no_room = True
    while runs not in engine.running:
        engine.step()
    entitled.has_no_room = False
    assert steps_until_preempted() >= 99


def test_many_ready_waiters_do_not_keep_an_entitled_one_from_being_checked(engine):
    core = engine.core
    engine.run(core.zone("burst"), 1, lora=0)
    gold = core.zone("gold", reserved=40, grace=0.0)
    entitled = engine.wait(gold, 1, lora=1, has_no_room=True)
    for number in range(2, 42):
        engine.wait(core.zone(f"burst-{number}", grace=1000.0), 1, lora=number)
    for _ in range(TURN_STEPS):
        engine.step()
    entitled.has_no_room = False
    engine.step()
    assert entitled in engine.running


def test_who_gets_a_slot_has_its_reserved_blocks_in_the_same_step(engine):
    core = engine.core
    gold, burst = core.zone("gold", reserved=40, grace=0.0), core.zone("burst")
    runs = engine.run(burst, 1, lora=3)
    for blocks in (90, 9):
        engine.run(burst, blocks)
    for number in range(70):
        # Before each step only a few zones that may lack blocks are looked at.
        engine.wait(core.zone(f"lead-{number}", reserved=1), 1, waits_for_else=True)
    entitled = engine.wait(gold, 40, lora=1)
    while runs in engine.running:
        assert not engine.preempted
        engine.step()
    assert entitled in engine.running


def test_who_waits_for_a_slot_is_short_of_no_blocks(engine):
    core = engine.core
    gold = core.zone("gold", reserved=40)
    engine.run(core.zone("burst"), 1, lora=3)
    engine.wait(gold, 1, lora=1)
    engine.step()
    assert (gold.wait_reason, gold.short) == ("adapter", 0)
