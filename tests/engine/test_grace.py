"""A loan that is due while running requests use it: they go on until its grace is over."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle, Lending

CAPACITY = 100
RESERVED = 50
MAX_LOAN = 10.0
GRACE = 60.0


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config, clock):
    """A quiet lender, and six requests of a borrower that stand on its reservation."""
    driver = Driver(make_scheduler(config, CAPACITY))
    lending = Lending(max_loan_seconds=MAX_LOAN, grace_seconds=GRACE)
    driver.declare(zone("acme", reserved=RESERVED, idle=Idle(after_seconds=0), lending=lending), zone("burst"))
    driver.scheduler.let_time_pass()
    for _ in range(6):
        driver.send("burst", prompt(8), max_tokens=100)
    go_on(driver, clock, 20)
    assert driver.zone("burst").in_use > RESERVED
    return driver


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def go_on(driver, clock, steps):
    """Makes steps that each schedule all running requests."""
    for _ in range(steps):
        running = {request.request_id for request in driver.scheduler.running}
        assert running <= set(driver.step())
        clock.seconds += 0.02
        driver.scheduler.let_time_pass()
        driver.check()


def test_requests_go_on_and_grow_during_the_grace(driver, clock):
    clock.seconds += MAX_LOAN
    driver.scheduler.let_time_pass()
    burst = driver.zone("burst")
    assert burst.overdue > 0
    in_use = burst.in_use
    go_on(driver, clock, 40)
    assert burst.counters.preemptions == 0
    assert burst.in_use > in_use


def test_nothing_more_is_admitted_on_it(driver, clock):
    clock.seconds += MAX_LOAN
    driver.scheduler.let_time_pass()
    late = driver.send("burst", prompt(2))
    go_on(driver, clock, 5)
    assert late.num_computed_tokens == 0


def test_after_the_grace_as_few_requests_yield_as_cover_what_is_overdue(driver, clock):
    clock.seconds += MAX_LOAN + GRACE
    driver.scheduler.let_time_pass()
    burst = driver.zone("burst")
    each, overdue = burst.in_use // 6, burst.overdue
    assert overdue > 0
    driver.step()
    assert burst.counters.preemptions == -(-overdue // each)
    clock.run(driver, 1000)


def test_a_lender_that_wants_its_blocks_waits_for_no_grace(driver, clock):
    clock.seconds += MAX_LOAN
    driver.scheduler.let_time_pass()
    wanted = driver.send("acme", prompt(40))
    driver.step()
    driver.step()
    assert driver.finished[wanted.request_id] == "length"


def test_nothing_is_reclaimed_for_what_a_config_has_covered_since(driver, clock):
    clock.seconds += MAX_LOAN + GRACE
    driver.scheduler.let_time_pass()
    assert driver.zone("burst").overdue > 0
    driver.declare(zone("acme"), zone("burst", reserved=CAPACITY))
    driver.step()
    assert driver.zone("burst").counters.preemptions == 0


def test_before_a_request_yields_goes_what_others_merely_cache(config, clock):
    """Each time it would be admitted again at once, and preempted again, because of what another zone caches."""
    driver = Driver(make_scheduler(config, 40))
    lending = Lending(max_loan_seconds=1, grace_seconds=0)
    driver.declare(zone("acme", reserved=25, lending=lending), zone("burst"), zone("calm"))
    driver.ask("calm", prompt(12))
    request = driver.send("burst", prompt(8), max_tokens=5)
    clock.run(driver, 20, step_seconds=0.5)
    assert driver.finished[request.request_id] == "length"
    assert driver.zone("burst").counters.preemptions == 0
    assert 0 < len(driver.zone("calm").cached) < 12


@pytest.mark.parametrize("max_loan", [0.0, 0.05, 1.0, None])
def test_what_is_computed_on_a_loan_is_not_lost_with_the_next_step(config, clock, max_loan):
    driver = Driver(make_scheduler(config, CAPACITY))
    lending = Lending(max_loan_seconds=max_loan, grace_seconds=0)
    driver.declare(zone("acme", reserved=60, lending=lending), zone("burst"), zone("calm"))
    busy = driver.send("calm", prompt(9), max_tokens=20)
    loan_needed = driver.send("burst", prompt(35), max_tokens=20)
    reasons = set()
    for _ in range(15):
        driver.step()
        reasons.add(driver.zone("burst").wait_reason)
        clock.seconds += 0.02
        driver.scheduler.let_time_pass()
    if max_loan is None or max_loan >= 1.0:
        assert loan_needed.num_output_tokens > 0
    else:
        assert loan_needed.num_computed_tokens == 0
        assert "reserved" in reasons
    clock.run(driver, 200)
    assert driver.finished == {busy.request_id: "length", loan_needed.request_id: "length"}
    assert loan_needed.num_preemptions == 0


def test_a_request_that_would_need_a_loan_that_ends_at_once_is_refused(config, clock):
    driver = Driver(make_scheduler(config, CAPACITY))
    lending = Lending(max_loan_seconds=0, grace_seconds=0)
    driver.declare(zone("acme", reserved=60, lending=lending), zone("burst"))
    request = driver.send("burst", prompt(CAPACITY - 55), max_tokens=20)
    clock.run(driver, 200)
    assert driver.finished[request.request_id] == "error"
    assert "40 blocks" in driver.stop_reasons[request.request_id], "nothing of the reservation can be had"
