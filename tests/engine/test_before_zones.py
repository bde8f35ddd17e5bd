"""Requests from before the first zone was declared: they wait and are preempted like any other, and delay none."""

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle

CAPACITY = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config, clock):
    return Driver(make_scheduler(config, CAPACITY))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def test_the_first_zone_may_come_after_a_request_was_refused_blocks(driver):
    """The state remembered for a request that did not fit is stale when the request runs."""
    first = driver.send(None, prompt(60), max_tokens=20)
    second = driver.send(None, prompt(60), max_tokens=100)
    while not first.is_finished():
        driver.step()
    driver.step()
    assert second.num_output_tokens > 0
    driver.declare(zone("acme", reserved=10))
    driver.run()
    assert second.num_output_tokens == 100


@pytest.mark.parametrize(
    "reservations", [{"gold": 60, "lead": 40}, {"gold": 60, "lead": 0}], ids=["all is reserved", "one reserves"]
)
@pytest.mark.shows("requests from before the first config")
def test_a_promise_holds_against_them_at_once(driver, reservations):
    for _ in range(4):
        driver.send(None, prompt(45), max_tokens=200)
    for _ in range(3):
        driver.step()
    driver.declare(*(zone(tenant, reserved=blocks) for tenant, blocks in reservations.items()))
    promised = [driver.send("gold", prompt(20), max_tokens=5) for _ in range(2)]
    for _ in range(8):
        driver.step()
        driver.check()
    assert all(request.is_finished() for request in promised)


@pytest.mark.parametrize("reservations", [{"gold": 60, "lead": 40}, {"gold": 60, "lead": 0}, {"gold": 0, "lead": 0}])
@pytest.mark.shows("requests from before the first config")
def test_they_end_when_the_zones_are_quiet(driver, clock, reservations):
    early = [driver.send(None, prompt(45), max_tokens=200) for _ in range(4)]
    for _ in range(3):
        driver.step()
    quiet = Idle(after_seconds=1)
    driver.declare(*(zone(tenant, reserved=blocks, idle=quiet) for tenant, blocks in reservations.items()))
    late = [driver.send(tenant, prompt(5), max_tokens=5) for tenant in reservations for _ in range(5)]
    clock.run(driver, 1500)
    assert [request.num_output_tokens for request in early] == [200] * 4
    assert [request.num_output_tokens for request in late] == [5] * 10


def test_one_that_waits_does_not_stop_those_that_run(config, clock):
    """Nothing is reserved: a request that runs out of blocks is helped, although a later one is refused blocks."""
    driver = Driver(make_scheduler(config, 60))
    early = [driver.send(None, prompt(10), max_tokens=150) for _ in range(8)]
    driver.step()
    driver.step()
    driver.declare(zone("acme"), zone("burst"))
    late = [driver.send("acme", prompt(2), max_tokens=60) for _ in range(6)]
    clock.run(driver, 1500)
    assert [request.num_output_tokens for request in early] == [150] * 8
    assert [request.num_output_tokens for request in late] == [60] * 6


def test_a_request_refused_by_the_first_registered_zone_leaves_no_other_without_a_zone(config):
    driver = Driver(make_scheduler(config, 100))
    early = driver.send(None, prompt(3), max_tokens=20)
    driver.step()
    template = UnknownTenantTemplate(limit=2)
    driver.declare(unknown_tenants=UnknownTenants(mode="AutoRegister", template=template))
    refused = driver.send("guest", prompt(10))
    assert early.zone is not None
    driver.run()
    assert driver.finished == {early.request_id: "length", refused.request_id: "error"}


def test_a_session_ends_when_zones_are_declared_and_stops_no_request(driver):
    """It holds blocks while it waits for more input, in a queue of vLLM's that no request can pass."""
    session = driver.send(None, prompt(40), resumable=True)
    driver.step()
    driver.step()
    assert session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
    never = Idle(after_seconds=1e6)
    driver.declare(zone("gold", reserved=55, idle=never), zone("lead", idle=never))
    driver.send("gold", prompt(3), max_tokens=200)
    driver.step()
    assert driver.finished[session.request_id] == "error"
    requests = [driver.send("gold", prompt(5)) for _ in range(3)] + [driver.send("lead", prompt(1))]
    for _ in range(10):
        driver.step()
    assert [driver.finished[request.request_id] for request in requests] == ["length"] * 4


def test_a_session_that_waits_for_input_in_an_idle_engine_ends_without_other_work(driver):
    session = driver.send(None, prompt(40), resumable=True)
    driver.step()
    driver.step()
    driver.declare(zone("acme"))
    driver.run()
    assert driver.finished[session.request_id] == "error"
    assert driver.scheduler.num_waiting_for_streaming_input == 0


def test_a_session_that_runs_ends_with_its_next_output(driver):
    session = driver.send(None, prompt(40), max_tokens=50, resumable=True)
    driver.step()
    driver.declare(zone("acme"))
    driver.run()
    assert driver.finished[session.request_id] == "error"
    assert driver.scheduler.get_num_unfinished_requests() == 0
