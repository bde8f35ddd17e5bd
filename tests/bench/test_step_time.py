"""The load stays constant while steps are timed, and the table reports what was timed."""

from collections import Counter
from dataclasses import replace

import pytest

from bench.scheduler.step_time.arm import Arm
from bench.scheduler.step_time.loads import LOADS
from bench.scheduler.step_time.results import Record, describe, rows
from hack.harness.scheduler import Driver, make_scheduler, vllm_config

SHORT_OF_SEATS = replace(LOADS["seats"], tenants=12, requests=24, capacity=400, seats=6, stock_seats=6)
SHORT_OF_BLOCKS = replace(LOADS["blocks"], tenants=12, requests=24, capacity=120, seats=16, stock_seats=16)
RESERVED = replace(LOADS["reservations"], tenants=12, requests=24, capacity=12 * 48 + 160, seats=16, stock_seats=6)


@pytest.fixture
def make_arm(tmp_path):
    def make(load, zones, *, ours=True):
        config = vllm_config(tmp_path, sequences=load.seats if ours else load.stock_seats)
        return Arm(Driver(make_scheduler(config, load.capacity, zones=ours)), load, zones)

    return make


@pytest.mark.parametrize("load", [SHORT_OF_SEATS, SHORT_OF_BLOCKS, RESERVED])
@pytest.mark.parametrize("ours", [True, False])
def test_each_tenant_has_as_many_requests_after_many_steps_as_before(make_arm, load, ours):
    arm = make_arm(load, load.tenants if ours else 0, ours=ours)
    arm.start()
    for _ in range(300):
        arm.step()
        assert sum(arm.outstanding.values()) == load.requests
    assert arm.record.ended > 0
    assert arm.outstanding == Counter(dict.fromkeys(range(load.tenants), 2))
    assert min(arm.record.waiting) > 0


def test_without_waiting_requests_the_next_tenant_follows(make_arm):
    load = replace(LOADS["no-queue"], tenants=12, requests=5, capacity=400, seats=5, stock_seats=5)
    arm = make_arm(load, 12)
    arm.start()
    assert arm.outstanding == Counter(range(5))
    for _ in range(300):
        arm.step()
    assert arm.record.ended > 0
    assert sum(arm.outstanding.values()) == 5
    assert set(arm.outstanding) != set(range(5))
    assert not any(arm.record.waiting)


def timed(zones, times):
    return Record(zones, times, running=[3] * len(times), waiting=[9] * len(times), ended=7, outside=0.5)


def test_arms_are_compared_step_by_step_and_judged_by_the_median():
    stock, one, many = timed(0, [0.001, 0.002, 0.004]), timed(1, [0.002, 0.002, 0.004]), timed(2, [0.003, 0.004, 0.004])
    title, *lines = describe(stock, [one, many], {1: 1.0, 2: 1.9}, seconds=10.0)
    assert title.split()[:3] == ["running", "waiting", "ended"]
    assert lines[0].split()[:4] == ["stock", "3", "9", "7"]
    assert lines[1].split()[-3:] == [f"{8 / 7:.3f}", "1.00", "met"]
    assert lines[1].split()[-5] == "1.000"
    assert lines[2].split()[-5] == "2.000"
    assert lines[2].endswith("1.90 missed")
    assert lines[3] == "2 zones against 1 zone, step by step: 1.500"
    assert lines[4] == "1 zone: 50.0 ms of processor time a second outside the steps"


def test_rows_have_the_figures_of_stock_and_of_each_arm():
    stock, one = timed(0, [0.001, 0.002, 0.004]), timed(1, [0.002, 0.002, 0.004])
    first, second = rows(stock, [one])
    assert (first["engine"], first["zones"], first["to stock, median"]) == ("stock", 0, 1.0)
    assert (second["engine"], second["zones"], second["running"], second["waiting"]) == ("zones", 1, 3, 9)
    assert (second["step, median, s"], second["to stock, median"]) == (0.002, 1.0)
