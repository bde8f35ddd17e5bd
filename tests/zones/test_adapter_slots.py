"""Adapter slots and seats: a slot goes to a request that finds a seat."""

import pytest

from tenantzone_runtime.zones.zone import SeatQuota
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine

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
