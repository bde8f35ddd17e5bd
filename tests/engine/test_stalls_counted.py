"""How long zones wait for blocks in vLLM's real scheduler, at times that the test chooses."""

import pytest
from vllm.v1.core.sched.interface import PauseState

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tests.engine.clock import Clock
from tests.engine.measured import abort, counters, figures_of, zone

CAPACITY = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=1024)


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


@pytest.fixture
def clock(driver):
    # The scheduler was made at a time of the machine's own clock.
    clock = Clock(driver.scheduler.tenancy.ledger.now + 1.0)
    with clock.in_force():
        yield clock


def stalled(driver):
    return counters(driver).stalled_seconds


def occupy(driver, blocks):
    """Starts a request of another zone that keeps `blocks` blocks in use."""
    return driver.send("burst", prompt(blocks - 1, extra=1), max_tokens=1000)


def test_a_zone_is_stalled_while_others_use_the_blocks_that_it_asks_for(driver, clock):
    driver.declare(zone("acme"), zone("burst"))
    hog = occupy(driver, 60)
    driver.step()
    driver.send("acme", prompt(50))
    clock.seconds += 1.0
    driver.step()
    for _ in range(3):
        clock.seconds += 1.0
        driver.step()
    assert stalled(driver) == {"in_use": pytest.approx(3.0)}
    abort(driver, hog)
    clock.seconds += 1.0
    driver.step()
    clock.seconds += 50.0
    driver.run()
    assert stalled(driver) == {"in_use": pytest.approx(4.0)}


def test_a_zone_whose_waiting_request_is_aborted_is_stalled_no_more_although_another_runs(driver, clock):
    driver.declare(zone("acme", limit=20))
    driver.send("acme", prompt(9), max_tokens=80)
    waiting = driver.send("acme", prompt(18))
    driver.step()
    clock.seconds += 2.0
    driver.step()
    abort(driver, waiting)
    driver.step()
    clock.seconds += 50.0
    driver.step()
    assert stalled(driver) == {"limit": pytest.approx(2.0)}
    assert driver.zone("acme").wait_reason is None


def test_a_zone_that_was_denied_is_stalled_while_steps_do_not_get_to_it(driver, clock):
    """Its own limit is in use, and that has not changed."""
    driver.declare(zone("acme", limit=20), zone("burst"))
    driver.send("acme", prompt(15), max_tokens=80)
    driver.step()
    driver.send("acme", prompt(10))
    driver.step()
    assert driver.zone("acme").wait_reason == "limit"
    # Its one running request and another zone's prompt use up the tokens of the next steps.
    driver.send("burst", prompt(75))
    driver.scheduler.max_num_scheduled_tokens = 64
    clock.seconds += 1.0
    driver.step()
    clock.seconds += 1.0
    driver.step()
    assert driver.zone("acme").wait_reason == "limit"
    before = stalled(driver)["limit"]
    for _ in range(5):
        clock.seconds += 10.0
        driver.step()
    assert stalled(driver)["limit"] == pytest.approx(before + 50.0)


def test_a_zone_below_its_reservation_is_stalled_although_steps_do_not_get_to_it(driver, clock):
    driver.declare(zone("burst"))
    occupy(driver, 60)
    driver.step()
    driver.declare(zone("acme", reserved=60), zone("burst", reserved=40))
    driver.send("acme", prompt(62))
    driver.scheduler.max_num_scheduled_tokens = 1
    for _ in range(3):
        clock.seconds += 1.0
        driver.step()
    assert stalled(driver) == {"in_use": pytest.approx(2.0)}


def test_a_paused_engine_stalls_no_caller(driver, clock):
    driver.declare(zone("acme", limit=20))
    driver.send("acme", prompt(15), max_tokens=80)
    driver.send("acme", prompt(10))
    driver.step()
    clock.seconds += 1.0
    driver.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    clock.seconds += 100.0
    assert stalled(driver) == {"limit": pytest.approx(1.0)}


def test_a_zone_whose_request_asks_for_more_than_its_reservation_is_not_short(driver):
    driver.declare(zone("burst"))
    occupy(driver, 60)
    driver.step()
    # The running request stands on the reservation that is declared after it.
    driver.declare(zone("acme", reserved=60), zone("burst", reserved=40))
    driver.send("acme", prompt(62))
    driver.scheduler.schedule()
    assert driver.zone("acme").wait_reason == "in_use"
    assert figures_of(driver)["acme"].short == 0


def test_a_zone_that_waits_at_its_own_limit_is_not_short(driver):
    driver.declare(zone("acme", reserved=20, limit=20))
    driver.send("acme", prompt(9), max_tokens=80)
    driver.send("acme", prompt(18))
    driver.step()
    assert driver.zone("acme").wait_reason == "limit"
    assert figures_of(driver)["acme"].short == 0
