"""The simulator checks the core's promises, and notices when one is broken."""

import dataclasses
from collections import Counter

import pytest

from bench.simulator.checks import Violation
from bench.simulator.engine import Model
from bench.simulator.inspection import Inspection
from bench.simulator.simulation import Plan, Simulation
from tenantzone_runtime.zones.blocks.cache_victims import CacheVictims
from tenantzone_runtime.zones.blocks.totals import Totals
from tenantzone_runtime.zones.model import quota
from tenantzone_runtime.zones.model.fair_queue import FairQueue
from tenantzone_runtime.zones.schedule import preemption
from tenantzone_runtime.zones.schedule.admission import Candidates
from tenantzone_runtime.zones.schedule.arbiter import Arbiter
from tenantzone_runtime.zones.schedule.backoff import BackoffSet
from tenantzone_runtime.zones.schedule.next_admission import NextAdmission

PLAN = Plan(requests=2_000, tenants=40, model=Model(capacity=1_024), full_check_every=1)
CROWDED = Plan(requests=2_000, tenants=8, seed=3, speed=0.5, model=Model(capacity=192), full_check_every=1)
"""Its requests alone fill the engine, so promised blocks have to be reclaimed from them."""
RECLAIMING = dataclasses.replace(CROWDED, seed=6)
"""The same, where a promise requires preempting running requests."""


def run(plan):
    simulation = Simulation(plan)
    for _ in simulation.run():
        pass
    return simulation


@pytest.mark.parametrize("lending", [True, False], ids=["lending", "no lending"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_generated_load_breaks_no_promise(seed, lending):
    summary = run(dataclasses.replace(PLAN, seed=seed, lending=lending)).summary
    assert summary.ended > 1_500
    assert summary.events["restart"] == 1
    assert summary.events["reload"] == 5
    assert summary.events["overcommitted"] == 1


def test_a_trace_breaks_no_promise():
    summary = run(dataclasses.replace(PLAN, trace=True, speed=0.5)).summary
    assert summary.ended > 1_500
    assert summary.overall.hit_tokens > 0


def test_the_loads_use_what_zones_can_do():
    summaries = [run(plan).summary for plan in (PLAN, dataclasses.replace(PLAN, speed=0.5), CROWDED)]
    evictions, preemptions, waits = (
        sum((getattr(summary, name) for summary in summaries), Counter())
        for name in ("evictions", "preemptions", "waits")
    )
    assert {"due", "idle", "limit", "own", "quiet", "reclaim", "relief", "removed", "watermark"} <= evictions.keys()
    assert {"own", "reclaim"} <= preemptions.keys()
    assert {"in_use", "limit", "reserved"} <= waits.keys()
    assert all(summary.loans > 0 for summary in summaries)
    assert summaries[0].refusals["unknown_tenant"] > 0


def test_the_same_seed_gives_the_same_run():
    first, second = run(PLAN), run(PLAN)
    assert first.digest == second.digest
    assert first.summary.lines() == second.summary.lines()


def test_another_seed_gives_another_run():
    assert run(PLAN).digest != run(dataclasses.replace(PLAN, seed=2)).digest


def test_a_zone_that_takes_what_is_locked_for_others_is_noticed(monkeypatch):
    real = quota.spare
    monkeypatch.setattr(quota, "spare", lambda *args, **sums: real(*args, **{**sums, "locked_elsewhere": 0}))
    with pytest.raises(Violation, match=r"I7: zone tenant-\d+ took \d+ blocks above its reservation"):
        run(PLAN)


def test_a_zone_that_may_take_less_than_its_reservation_is_noticed(monkeypatch):
    real = Totals.takeable
    monkeypatch.setattr(Totals, "takeable", lambda self, zone, free, **what: real(self, zone, free, **what) // 2)
    # What it may take is asked when a zone that backs off is, too.
    with pytest.raises(Violation, match=r"liveness: \d+ requests wait, and 4 steps were empty"):
        run(dataclasses.replace(CROWDED, seed=2, full_check_every=CROWDED.requests))


def test_preempting_nothing_for_a_zone_within_its_reservation_is_noticed(monkeypatch):
    monkeypatch.setattr(preemption, "choose_victim", lambda running, beneficiary, *, entitled: None)
    with pytest.raises(Violation, match=r"I2: zone tenant-\d+ was denied \d+ blocks within its reservation twice"):
        run(RECLAIMING)


def test_a_zone_cut_below_its_reservation_is_noticed(monkeypatch):
    real = CacheVictims.oldest_surplus

    def greedy(self, beneficiary, *, of_active):
        victim = real(self, beneficiary, of_active=of_active)
        return victim and (victim[0], len(victim[0].cached))

    monkeypatch.setattr(CacheVictims, "oldest_surplus", greedy)
    with pytest.raises(Violation, match=r"I7: zone tenant-\d+ left with"):
        run(PLAN)


def test_a_limit_that_is_passed_is_noticed(monkeypatch):
    real = quota.takeable
    monkeypatch.setattr(
        quota, "takeable", lambda promise, *args, **sums: real(dataclasses.replace(promise, limit=10**9), *args, **sums)
    )
    with pytest.raises(Violation, match="I3"):
        run(PLAN)


def test_a_queue_that_serves_the_most_served_zone_first_is_noticed(monkeypatch):
    real = FairQueue.in_order
    monkeypatch.setattr(FairQueue, "in_order", lambda self: reversed(list(real(self))))
    monkeypatch.setattr(Candidates, "__iter__", lambda self: (zone for _, zone in self._waiting))
    with pytest.raises(Violation, match="fairness"):
        run(dataclasses.replace(PLAN, speed=3.0, model=Model(capacity=2_048, max_running=4)))


def test_a_zone_that_nothing_wakes_is_noticed(monkeypatch):
    monkeypatch.setattr(BackoffSet, "due", lambda self, free, place, is_running: iter(()))
    with pytest.raises(Violation, match=r"backed off: zone tenant-\d+ could be admitted"):
        run(PLAN)


def test_an_engine_that_admits_no_request_is_noticed(monkeypatch):
    monkeypatch.setattr(NextAdmission, "admit_front", lambda self: None)
    monkeypatch.setattr(Inspection, "after_schedule", lambda self, engine: None)
    with pytest.raises(Violation, match=r"liveness: \d+ requests wait, and 4 steps were empty"):
        run(PLAN)


def test_requests_whose_work_is_lost_again_and_again_are_noticed(monkeypatch):
    real = Arbiter.begin_step

    def lose(self):
        real(self)
        for work in self._engine.running[:]:
            self._engine.preempt(work)

    monkeypatch.setattr(Arbiter, "begin_step", lose)
    with pytest.raises(Violation, match=r"liveness: not at the end \d+ steps after the last request came"):
        run(Plan(requests=20, tenants=4, model=Model(capacity=1_024)))


def test_a_violation_names_seed_and_step_and_shows_the_zones(monkeypatch):
    monkeypatch.setattr(preemption, "choose_victim", lambda running, beneficiary, *, entitled: None)
    with pytest.raises(Violation, match=r"seed 6.*step \d+") as broken:
        run(RECLAIMING)
    assert "reserved" in str(broken.value)
