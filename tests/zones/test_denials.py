"""Who is looked at again when: a zone's next request that was denied costs nothing until something changes for it."""

from tests.zones.small_engine import SmallEngine
from tests.zones.zoo import declare


def looks(engine):
    """Which requests a step looks at, and which of them it admits."""
    engine.looked_at = []
    _, admitted = engine.step()
    return {work.zone.spec.tenant for work in engine.looked_at}, [work.zone.spec.tenant for work in admitted]


def test_a_denied_request_is_not_looked_at_in_steps_that_change_nothing(zoo, engine):
    engine.run(zoo.zone("busy"), 90)
    engine.wait(zoo.zone("burst"), 20)
    assert looks(engine) == ({"burst"}, [])
    assert [looks(engine) for _ in range(3)] == [(set(), [])] * 3


def test_it_is_looked_at_when_enough_blocks_are_free_and_not_before(zoo, engine):
    busy = zoo.zone("busy")
    works = [engine.run(busy, 10) for _ in range(9)]
    engine.wait(zoo.zone("burst"), 30)
    looks(engine)
    engine.end(works.pop())
    assert looks(engine) == (set(), [])
    engine.end(works.pop())
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_has_its_share_is_looked_at_when_enough_is_nobodys_promise_and_not_before(zoo, engine):
    busy, burst = zoo.zone("busy", weight=99), zoo.zone("burst")
    works = [engine.run(busy, 10) for _ in range(8)]
    engine.run(burst, 10)
    engine.wait(burst, 30)
    assert looks(engine) == ({"burst"}, [])
    engine.end(works.pop())
    assert looks(engine) == (set(), [])
    engine.end(works.pop())
    assert looks(engine) == ({"burst"}, ["burst"])


def test_many_that_wait_are_woken_by_what_each_asks_for(zoo, engine):
    busy = zoo.zone("busy")
    works = [engine.run(busy, 10) for _ in range(10)]
    for count in (35, 25, 15, 5):
        engine.wait(zoo.zone(f"asks-{count}"), count)
    looks(engine)
    engine.end(works.pop())
    assert looks(engine) == ({"asks-5"}, ["asks-5"])
    engine.end(works.pop())
    assert looks(engine) == ({"asks-15"}, ["asks-15"])


def test_who_waits_for_its_own_limit_is_looked_at_when_it_holds_less(zoo, engine):
    capped = zoo.zone("capped", limit=20)
    work = engine.run(capped, 20)
    other = engine.run(zoo.zone("busy"), 50)
    engine.wait(capped, 5)
    looks(engine)
    engine.end(other)
    assert looks(engine) == (set(), [])
    engine.end(work)
    assert looks(engine) == ({"capped"}, ["capped"])


def test_who_waits_for_its_own_limit_is_looked_at_when_the_limit_is_raised(zoo, engine):
    zoo.apply(declare("capped", limit=20))
    engine.run(zoo.ledger.zones["capped"], 20)
    engine.wait(zoo.ledger.zones["capped"], 5)
    looks(engine)
    zoo.apply(declare("capped", limit=30))
    assert looks(engine) == ({"capped"}, ["capped"])


def test_who_waits_for_a_reservation_is_looked_at_when_its_owner_is_quiet(zoo, engine):
    acme = zoo.zone("acme", reserved=60)
    engine.run(zoo.zone("busy"), 10)
    engine.wait(zoo.zone("burst"), 50)
    assert looks(engine) == ({"burst"}, [])
    zoo.set_quiet(acme)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_waits_for_others_caches_is_looked_at_when_its_share_has_grown(zoo, engine):
    zoo.apply(declare("acme"), declare("lead"), declare("heavy", weight=8))
    acme, lead, heavy = zoo.ledger.zones.values()
    for zone in (lead, heavy):
        zoo.tenancy.request_arrived(zone, 0.0)
    engine.run(acme, 10)
    zoo.hold(lead, cached=90)
    engine.wait(acme, 20)
    assert looks(engine) == ({"acme"}, [])
    assert looks(engine) == (set(), [])
    zoo.apply(declare("acme"), declare("lead"), declare("heavy", weight=1))
    assert looks(engine) == ({"acme"}, ["acme"])


def test_who_owes_blocks_is_looked_at_when_it_owes_none_any_more(zoo, engine):
    zoo.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=1e6)
    burst = zoo.zone("burst")
    works = [engine.run(burst, 35), engine.run(burst, 35)]
    zoo.upkeep(0.0)
    zoo.upkeep(60.0)
    engine.wait(burst, 5)
    assert looks(engine) == ({"burst"}, [])
    assert looks(engine) == (set(), [])
    engine.end(works.pop())
    looks(engine)
    zoo.upkeep(61.0)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_misses_its_headroom_is_looked_at_when_that_is_there(zoo):
    engine = SmallEngine(zoo, headroom=10)
    busy = zoo.zone("busy")
    works = [engine.run(busy, 10) for _ in range(8)]
    engine.wait(zoo.zone("burst"), 20)
    assert looks(engine) == ({"burst"}, [])
    assert looks(engine) == (set(), [])
    engine.end(works.pop(), kept=True)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_misses_its_headroom_is_looked_at_when_nothing_runs_any_more(zoo):
    engine = SmallEngine(zoo, headroom=50)
    work = engine.run(zoo.zone("busy"), 10)
    engine.wait(zoo.zone("burst"), 60)
    assert looks(engine) == ({"burst"}, [])
    engine.end(work)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_who_is_entitled_and_denied_in_a_step_is_looked_at_before_the_next(zoo, engine):
    acme, busy = zoo.zone("acme", reserved=40), zoo.zone("busy")
    engine.wait(acme, 40)
    engine.arbiter.begin_step()
    engine.run(busy, 100)
    assert engine.arbiter.next_front() is None
    engine.arbiter.end_step()
    assert looks(engine) == ({"acme"}, ["acme"])


def test_a_new_front_is_looked_at_whatever_the_old_one_was_denied(zoo, engine):
    burst = zoo.zone("burst")
    engine.run(zoo.zone("busy"), 90)
    big = engine.wait(burst, 20)
    engine.wait(burst, 5)
    looks(engine)
    engine.leave(big)
    assert looks(engine) == ({"burst"}, ["burst"])


def test_bars_of_zones_that_went_on_do_not_pile_up(zoo, engine):
    busy, burst = zoo.zone("busy"), zoo.zone("burst", limit=50)
    engine.run(busy, 95)
    for _ in range(1000):
        work = engine.wait(burst, 10)
        assert looks(engine) == ({"burst"}, [])
        engine.leave(work)
    denials = engine.arbiter._admission._denials
    assert sum(map(len, denials._bars.values())) <= 2 * 64
    assert not denials._new


def test_bars_of_priorities_of_which_nobody_waits_any_more_do_not_pile_up(zoo, engine):
    engine.run(zoo.zone("busy"), 95)
    for priority in range(300):
        zone = zoo.zone(f"tenant-{priority}", priority=priority)
        work = engine.wait(zone, 10)
        looks(engine)
        engine.leave(work)
    looks(engine)
    assert len(engine.arbiter._admission._denials._bars) <= 1
