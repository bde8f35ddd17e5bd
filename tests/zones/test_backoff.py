"""When a zone is tried again: after a refusal, its next request costs nothing until something changes for it."""

from tests.zones.core import declare
from tests.zones.small_engine import SmallEngine


def looks(engine):
    """The requests that a step looks at, and those of them that it admits."""
    engine.looked_at = []
    _, admitted = engine.step()
    return {work.zone.spec.tenant for work in engine.looked_at}, [work.zone.spec.tenant for work in admitted]


def test_a_denied_request_is_not_looked_at_in_steps_that_change_nothing(core, engine):
    engine.run(core.zone("busy"), 90)
    engine.wait(core.zone("burst"), 20)
    assert looks(engine) == ({"burst"}, [])
    assert [looks(engine) for _ in range(3)] == [(set(), [])] * 3


def test_it_is_looked_at_when_enough_blocks_are_free_and_not_before(core, engine):
    busy = core.zone("busy")
    works = [engine.run(busy, 10) for _ in range(9)]
    engine.wait(core.zone("burst"), 30)
    looks(engine)
    engine.end(works.pop())
    assert looks(engine) == (set(), [])
    engine.end(works.pop())
    assert looks(engine) == ({"burst"}, ["burst"])


def test_a_zone_with_its_share_is_looked_at_when_enough_is_unpromised_and_not_before(core, engine):
    busy, burst = core.zone("busy", weight=99), core.zone("burst")
    works = [engine.run(busy, 10) for _ in range(8)]
    engine.run(burst, 10)
    engine.wait(burst, 30)
    assert looks(engine) == ({"burst"}, [])
    engine.end(works.pop())
    assert looks(engine) == (set(), [])
    engine.end(works.pop())
    assert looks(engine) == ({"burst"}, ["burst"])


def test_many_that_wait_are_woken_by_what_each_asks_for(core, engine):
    busy = core.zone("busy")
    works = [engine.run(busy, 10) for _ in range(10)]
    for count in (35, 25, 15, 5):
        engine.wait(core.zone(f"asks-{count}"), count)
    looks(engine)
    engine.end(works.pop())
    assert looks(engine) == ({"asks-5"}, ["asks-5"])
    engine.end(works.pop())
    assert looks(engine) == ({"asks-15"}, ["asks-15"])


def test_who_waits_for_its_own_limit_is_looked_at_when_it_holds_less(core, engine):
    capped = core.zone("capped", limit=20)
    work = engine.run(capped, 20)
    other = engine.run(core.zone("busy"), 50)
    engine.wait(capped, 5)
    looks(engine)
    engine.end(other)
    assert looks(engine) == (set(), [])
    engine.end(work)
    assert looks(engine) == ({"capped"}, ["capped"])


def test_who_waits_for_its_own_limit_is_looked_at_when_the_limit_is_raised(core, engine):
    core.apply(declare("capped", limit=20))
    engine.run(core.ledger.zones["capped"], 20)
    engine.wait(core.ledger.zones["capped"], 5)
    looks(engine)
    core.apply(declare("capped", limit=30))
    assert looks(engine) == ({"capped"}, ["capped"])


def test_who_waits_for_a_reservation_is_looked_at_when_its_owner_is_quiet(core, engine):
    acme = core.zone("acme", reserved=60)
    engine.run(core.zone("busy"), 10)
    engine.wait(core.zone("burst"), 50)
    assert looks(engine) == ({"burst"}, [])
    core.set_quiet(acme)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_waits_for_others_caches_is_looked_at_when_its_share_has_grown(core, engine):
    core.apply(declare("acme"), declare("lead"), declare("heavy", weight=8))
    acme, lead, heavy = core.ledger.zones.values()
    for zone in (lead, heavy):
        core.tenancy.request_arrived(zone, 0.0)
    engine.run(acme, 10)
    core.hold(lead, cached=90)
    engine.wait(acme, 20)
    assert looks(engine) == ({"acme"}, [])
    assert looks(engine) == (set(), [])
    core.apply(declare("acme"), declare("lead"), declare("heavy", weight=1))
    assert looks(engine) == ({"acme"}, ["acme"])


def test_who_owes_blocks_is_looked_at_when_it_owes_none_any_more(core, engine):
    core.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=1e6)
    burst = core.zone("burst")
    works = [engine.run(burst, 35), engine.run(burst, 35)]
    core.upkeep(0.0)
    core.upkeep(60.0)
    engine.wait(burst, 5)
    assert looks(engine) == ({"burst"}, [])
    assert looks(engine) == (set(), [])
    engine.end(works.pop())
    looks(engine)
    core.upkeep(61.0)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_misses_its_headroom_is_looked_at_when_that_is_there(core):
    engine = SmallEngine(core, headroom=10)
    busy = core.zone("busy")
    works = [engine.run(busy, 10) for _ in range(8)]
    engine.wait(core.zone("burst"), 20)
    assert looks(engine) == ({"burst"}, [])
    assert looks(engine) == (set(), [])
    engine.end(works.pop(), kept=True)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_misses_its_headroom_is_looked_at_when_nothing_runs_any_more(core):
    engine = SmallEngine(core, headroom=50)
    work = engine.run(core.zone("busy"), 10)
    engine.wait(core.zone("burst"), 60)
    assert looks(engine) == ({"burst"}, [])
    engine.end(work)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_is_entitled_and_denied_in_a_step_is_looked_at_before_the_next(core, engine):
    acme, busy = core.zone("acme", reserved=40), core.zone("busy")
    engine.wait(acme, 40)
    engine.arbiter.begin_step()
    engine.run(busy, 100)
    assert engine.arbiter.admit_next() is None
    engine.arbiter.end_step()
    assert looks(engine) == ({"acme"}, ["acme"])


def test_a_new_front_is_looked_at_whatever_the_old_one_was_denied(core, engine):
    burst = core.zone("burst")
    engine.run(core.zone("busy"), 90)
    big = engine.wait(burst, 20)
    engine.wait(burst, 5)
    looks(engine)
    engine.leave(big)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_bars_of_zones_that_went_on_do_not_pile_up(core, engine):
    busy, burst = core.zone("busy"), core.zone("burst", limit=50)
    engine.run(busy, 95)
    for _ in range(1000):
        work = engine.wait(burst, 10)
        assert looks(engine) == ({"burst"}, [])
        engine.leave(work)
    backoff = engine.arbiter._admission._backoff
    assert sum(map(len, backoff._thresholds.values())) <= 2 * 64
    assert not backoff._new


def test_bars_of_priorities_without_waiting_requests_do_not_pile_up(core, engine):
    engine.run(core.zone("busy"), 95)
    for priority in range(300):
        zone = core.zone(f"tenant-{priority}", priority=priority)
        work = engine.wait(zone, 10)
        looks(engine)
        engine.leave(work)
    looks(engine)
    assert len(engine.arbiter._admission._backoff._thresholds) <= 1
