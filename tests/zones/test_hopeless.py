"""Requests that a config has made impossible since they came."""

import pytest

from tenantzone_runtime.zones.hopeless import HOPELESS_SECONDS
from tests.zones.small_engine import SmallEngine
from tests.zones.zoo import Zoo, declare


@pytest.fixture
def zoo():
    return Zoo(100)


@pytest.fixture
def engine(zoo):
    return SmallEngine(zoo)


def test_what_can_not_be_served_is_said_at_once_and_failed_with_the_numbers_when_no_config_helps(zoo, engine):
    zoo.zone("acme", reserved=50, lendable=0)
    burst = zoo.zone("burst", limit=80)
    work, fits = engine.wait(burst, 51), engine.wait(burst, 50)
    engine.step()
    zoo.now = HOPELESS_SECONDS - 0.1
    assert engine.step() == ([], [])
    assert (engine.warned, engine.failed) == ([work], [])
    zoo.now = HOPELESS_SECONDS
    assert engine.step() == ([], [fits])
    ((failed, error),) = engine.failed
    assert failed is work
    assert error == (
        "it needs 51 blocks; zone burst can have 50 of this engine's 100 at the most: its limit is 80, "
        "and other zones keep the rest"
    )


def test_as_long_as_others_of_its_zone_run_no_request_is_hopeless(zoo, engine):
    capped = zoo.zone("capped", limit=40)
    runs = engine.run(capped, 30)
    waits = engine.wait(capped, 41)
    engine.step()
    zoo.now = HOPELESS_SECONDS
    engine.step()
    assert (engine.warned, engine.failed) == ([], [])
    engine.end(runs)
    engine.step()
    assert engine.warned == [waits]


def test_what_a_config_makes_possible_in_time_is_served(zoo, engine):
    zoo.apply(declare("burst", limit=40))
    burst = zoo.ledger.zones["burst"]
    work = engine.wait(burst, 50)
    engine.step()
    zoo.apply(declare("burst"))
    zoo.now = HOPELESS_SECONDS
    assert engine.step()[1] == [work]
    assert engine.failed == []


def test_a_request_that_is_hopeless_costs_nothing_while_it_waits_for_a_config(zoo, engine):
    zoo.zone("acme", reserved=50, lendable=0)
    engine.run(zoo.zone("busy"), 10)
    for number in range(5):
        engine.wait(zoo.zone(f"burst-{number}"), 51)
    engine.step()
    asked = []
    engine.blocks_to_admit = lambda work: asked.append(work) or work.count
    zoo.now = HOPELESS_SECONDS / 2
    assert engine.step() == ([], [])
    assert asked == []
    zoo.now = HOPELESS_SECONDS
    engine.step()
    assert len(engine.failed) == 5
