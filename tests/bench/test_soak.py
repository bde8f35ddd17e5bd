"""Days of the zone core in virtual time, shorter ones than those of ``make soak``: its memory does not grow."""

from collections import deque

import pytest

from bench.soak.days import Days
from bench.soak.kept import entries
from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue
from tenantzone_runtime.zones.tenancy import Tenancy

DAY_SECONDS = 7200.0
DAYS = 6


def live(count, leak=None):
    days = Days(zones=40, day_seconds=DAY_SECONDS)
    for _ in range(count):
        for now in days.live_a_day():
            if leak is not None:
                leak(days.engine, now)
    return days


@pytest.fixture(scope="module")
def lived():
    return live(DAYS)


def test_nothing_that_the_core_keeps_grows_from_day_to_day(lived):
    assert lived.averages.grown() == {}


def test_all_that_could_be_kept_happens_on_these_days(lived):
    events = lived.events
    assert {"lent", "repaid", "loan_usage", "usage", "balance", "evicted", "preempted", "refused"} <= set(events)
    assert events["loan_usage"] > 1000
    assert events["lifecycle"] > 1000
    assert "lost" not in events


def test_what_grows_is_named():
    days = live(3, leak=lambda engine, now: engine.tenancy.refusals.setdefault(str(now), 1))
    assert set(days.averages.grown()) == {"Tenancy.refusals"}


def test_entries_are_counted_by_class_and_attribute_however_deep():
    queue = FairQueue()
    before = entries(queue)
    assert (before["FairQueue"], before["FairQueue._heap"], before["Account"]) == (1, 0, 0)
    for _ in range(3):
        queue.enter(Account())
    after = entries(queue)
    assert (after["FairQueue._heap"], after["Account"]) == (3, 3)
    tenancy = Tenancy(7, 7)
    tenancy.surprise = {"a": [deque([1, 2]), {3}]}
    counted = entries(tenancy, queue)
    assert counted["Tenancy.surprise"] == 1 + 2 + 2 + 1
    assert counted["Ledger.owner"] == 7
