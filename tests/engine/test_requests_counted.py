"""How long requests of vLLM's real scheduler wait and how they end, at times that the test chooses."""

import gc
import weakref

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_runtime.engine.blocks import latencies
from tests.engine.clock import Clock
from tests.engine.measured import abort, counters, zone

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


def test_a_request_waits_from_its_arrival_at_the_api_server(driver, clock):
    driver.declare(zone("acme"))
    driver.send("acme", prompt(2), max_tokens=3, arrival_time=clock.time() - 4.0)
    clock.seconds += 3.0
    output, result = driver.schedule()
    assert counters(driver).queue_time.sum == pytest.approx(7.0)
    assert counters(driver).time_to_first_token.count == 0
    clock.seconds += 5.0
    driver.update(output, result)
    assert counters(driver).time_to_first_token.sum == pytest.approx(12.0)
    clock.seconds += 100.0
    driver.run()
    assert (counters(driver).queue_time.count, counters(driver).time_to_first_token.count) == (1, 1)


def test_a_wall_clock_that_is_set_afterwards_changes_no_duration(driver, clock, monkeypatch):
    driver.declare(zone("acme"))
    driver.send("acme", prompt(2), arrival_time=clock.time())
    monkeypatch.setattr(latencies.time, "time", lambda: 0.0)
    clock.seconds += 2.0
    driver.run()
    assert counters(driver).queue_time.sum == pytest.approx(2.0)
    assert counters(driver).time_to_first_token.sum == pytest.approx(2.0)


def test_an_arrival_that_lies_in_the_future_counts_as_now(driver, clock):
    driver.declare(zone("acme"))
    driver.send("acme", prompt(2), arrival_time=clock.time() + 60.0)
    clock.seconds += 2.0
    driver.run()
    assert counters(driver).queue_time.sum == pytest.approx(2.0)


def test_the_first_token_of_a_long_prompt_comes_with_its_last_part(driver, clock):
    driver.declare(zone("acme"))
    driver.send("acme", prompt(90), arrival_time=clock.time())
    for _ in range(2):
        clock.seconds += 1.0
        driver.step()
    durations = counters(driver)
    assert (durations.queue_time.sum, durations.time_to_first_token.sum) == pytest.approx((1.0, 2.0))


def test_a_preempted_request_has_waited_once_and_its_first_token_is_still_its_first(driver, clock):
    driver.declare(zone("acme"))
    request = driver.send("acme", prompt(90), max_tokens=3, arrival_time=clock.time())
    driver.step()
    assert driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert request.num_preemptions == 1
    clock.seconds += 6.0
    driver.run()
    durations = counters(driver)
    assert (durations.queue_time.count, durations.queue_time.sum) == (1, 0.0)
    assert (durations.time_to_first_token.count, durations.time_to_first_token.sum) == (1, pytest.approx(6.0))


def test_a_request_that_ends_without_a_token_had_no_first_one(driver, clock):
    driver.declare(zone("acme"))
    request = driver.send("acme", prompt(90))
    driver.step()
    abort(driver, request)
    driver.ask("acme", prompt(2))
    assert (counters(driver).queue_time.count, counters(driver).time_to_first_token.count) == (2, 1)


def test_a_request_that_ends_without_a_token_is_not_kept(driver):
    driver.declare(zone("acme"))
    name = driver.send("acme", prompt(90)).request_id
    driver.step()
    request = weakref.ref(driver.scheduler.requests[name])
    driver.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
    driver.ask("acme", prompt(2))
    gc.collect()
    assert request() is None


def test_each_request_counts_by_how_it_ended(driver):
    driver.declare(zone("acme", limit=50))
    driver.ask("acme", prompt(2), max_tokens=5)
    waiting, running = driver.send("acme", prompt(2)), driver.send("acme", prompt(2), max_tokens=50)
    abort(driver, waiting)
    driver.step()
    abort(driver, running)
    driver.send("acme", prompt(60))
    failed = driver.send("acme", prompt(2))
    driver.scheduler.end_with_error(failed)
    stopped = driver.send("acme", prompt(2), max_tokens=50)
    stopped.sampling_params.stop_token_ids = [5]
    driver.run()
    assert counters(driver).requests == {"length": 1, "abort": 2, "refused": 1, "error": 1, "stop": 1}


def test_what_the_scheduler_refuses_is_counted_by_its_reason(driver):
    driver.declare(zone("acme", limit=50))
    driver.send(None, prompt(2))
    driver.send("stranger", prompt(2))
    driver.send("acme", prompt(60))
    driver.send("acme", prompt(2), resumable=True)
    refusals = {
        "unbound": 1,
        "unknown_tenant": 1,
        "too_long": 1,
        "unsupported": 1,
        "changed_adapter": 0,
        "queue_full": 0,
    }
    assert driver.scheduler.tenancy.refusals == refusals
    driver.run()
    assert counters(driver).requests == {"refused": 1}
