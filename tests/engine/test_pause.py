"""A pause lets running requests finish, and holds the others back."""

import pytest
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


@pytest.mark.shows("pause and resume")
def test_what_runs_does_not_yield_to_a_request_that_the_pause_holds_back(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", reserved=60, idle=Idle(after_seconds=0)), zone("burst"))
    driver.scheduler.let_time_pass()
    running = [driver.send("burst", prompt(14), max_tokens=60) for _ in range(5)]
    for _ in range(3):
        driver.step()
    driver.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    late = driver.send("acme", prompt(50), max_tokens=5)
    driver.run()
    assert [request.num_output_tokens for request in running] == [60] * 5
    assert driver.zone("burst").counters.preemptions == 0
    assert late.num_computed_tokens == 0
    driver.scheduler.set_pause_state(PauseState.UNPAUSED)
    driver.run()
    assert driver.finished[late.request_id] == "length"


def test_nothing_is_evicted_for_a_request_that_the_pause_holds_back(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", reserved=60), zone("burst"))
    driver.ask("burst", prompt(80))
    running = driver.send("burst", prompt(2), max_tokens=10)
    driver.step()
    driver.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    driver.send("acme", prompt(50))
    driver.run()
    assert running.is_finished()
    assert driver.zone("burst").counters.evicted == {}


@pytest.mark.shows("pause and resume")
def test_no_request_yields_while_all_is_paused(config):
    """A client that leaves makes the engine step; nothing is computed in it."""
    driver = Driver(make_scheduler(config, 20))
    driver.declare(zone("acme"), zone("burst"))
    running = [driver.send("acme", prompt(9, extra=16), max_tokens=40) for _ in range(2)]
    driver.step()
    late = driver.send("burst", prompt(3))
    driver.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    driver.scheduler.finish_requests(late.request_id, RequestStatus.FINISHED_ABORTED)
    driver.step()
    assert [request.status for request in running] == [RequestStatus.RUNNING] * 2
    driver.scheduler.finish_requests(running[0].request_id, RequestStatus.FINISHED_ABORTED)
    driver.scheduler.set_pause_state(PauseState.UNPAUSED)
    driver.run()
    assert running[1].num_preemptions == 0
    assert driver.finished[running[1].request_id] == "length"


def test_preemptions_by_a_reset_that_fails_are_counted(config, monkeypatch):
    """vLLM preempts all requests first, and fails if blocks are still in use then."""
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme"))
    driver.send("acme", prompt(3), max_tokens=20)
    driver.step()
    monkeypatch.setattr(driver.scheduler.kv_cache_manager, "reset_prefix_cache", lambda: False)
    with pytest.raises(RuntimeError):
        driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert driver.zone("acme").counters.preemptions == 1
