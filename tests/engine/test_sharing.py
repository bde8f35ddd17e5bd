"""Lending, fair service and unknown tenants inside vLLM's real scheduler; the model's tokens are made up."""

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.zone_config.config import Watermarks, ZoneConfig
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle, Lending, Release
from tenantzone_runtime.housekeeping.report.reporting import make_report

CAPACITY = 100
QUIET_AT_ONCE = Idle(after_seconds=0)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=4096)


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def run_with_time(driver, max_steps=500):
    """Steps until no request is left, with time passing between the steps."""
    for _ in range(max_steps):
        driver.step()
        driver.scheduler.let_time_pass()
        driver.check()
        if not driver.scheduler.has_unfinished_requests():
            return
    raise AssertionError(f"requests are left after {max_steps} steps")


def loans(driver):
    return {
        (loan.lender.spec.tenant, loan.borrower.spec.tenant): loan.blocks for loan in driver.scheduler.tenancy.loans
    }


def test_what_stands_on_a_quiet_reservation_is_a_loan_and_ends_when_the_lender_comes_back(driver):
    driver.declare(zone("acme", reserved=60, idle=QUIET_AT_ONCE), zone("burst"))
    driver.scheduler.let_time_pass()
    driver.send("burst", prompt(80), max_tokens=60)
    driver.step()
    driver.scheduler.let_time_pass()
    assert loans(driver) == {("acme", "burst"): 41}
    driver.send("acme", prompt(55), max_tokens=3)
    driver.step()
    assert driver.zone("acme").in_use == 56
    driver.scheduler.let_time_pass()
    assert sum(loans(driver).values()) <= 4
    run_with_time(driver)


def test_a_lower_priority_does_not_borrow_unless_the_lender_lets_it(driver):
    gold = {"reserved": 60, "priority": 5, "idle": QUIET_AT_ONCE}
    driver.declare(zone("gold", **gold), zone("burst"))
    assert driver.finished[driver.ask("burst", prompt(50)).request_id] == "error", "it could wait for ever"
    assert driver.finished[driver.ask("burst", prompt(39)).request_id] == "length"
    driver.declare(zone("gold", **gold, lending=Lending(borrowers="AnyPriority")), zone("burst"))
    assert driver.finished[driver.ask("burst", prompt(50)).request_id] == "length"


def test_a_loan_that_is_due_is_taken_from_what_runs_after_its_grace(config, clock):
    driver = Driver(make_scheduler(config, CAPACITY))
    lending = Lending(max_loan_seconds=1, grace_seconds=0)
    driver.declare(zone("acme", reserved=60, idle=QUIET_AT_ONCE, lending=lending), zone("burst"))
    driver.scheduler.let_time_pass()
    borrower = driver.send("burst", prompt(80), max_tokens=5)
    driver.step()
    assert driver.zone("burst").in_use == 81
    driver.scheduler.let_time_pass()
    clock.seconds += 1
    driver.scheduler.let_time_pass()
    driver.step()
    assert driver.zone("burst").held <= 40
    assert driver.zone("burst").counters.evicted["due"] >= 40
    assert driver.zone("burst").counters.preemptions == 1
    assert borrower.num_preemptions == 1


def test_a_loan_that_is_due_stops_the_borrower_from_growing_until_it_is_returned(driver):
    lending = Lending(max_loan_seconds=0, grace_seconds=1000)
    driver.declare(zone("acme", reserved=60, idle=QUIET_AT_ONCE, lending=lending), zone("burst"))
    driver.scheduler.let_time_pass()
    running = driver.send("burst", prompt(80), max_tokens=5)
    driver.step()
    driver.scheduler.let_time_pass()
    late = driver.send("burst", prompt(2))
    driver.step()
    assert (driver.zone("burst").overdue, late.num_computed_tokens) == (41, 0)
    run_with_time(driver)
    assert driver.finished[running.request_id] == "length"
    assert driver.finished[late.request_id] == "length"
    assert loans(driver) == {}


def test_service_follows_the_weights(config, tmp_path):
    """Both want the whole engine all the time."""
    driver = Driver(make_scheduler(vllm_config(tmp_path, sequences=6), CAPACITY))
    driver.declare(zone("heavy", weight=2), zone("light"))
    for _ in range(60):
        driver.send("heavy", prompt(2), max_tokens=8)
        driver.send("light", prompt(2), max_tokens=8)
    for _ in range(90):
        driver.step()
    heavy, light = (driver.zone(tenant).counters.generation_tokens for tenant in ("heavy", "light"))
    assert light > 100
    assert heavy / light == pytest.approx(2, rel=0.1)


def test_a_tenant_with_many_requests_does_not_delay_one_with_few(tmp_path):
    driver = Driver(make_scheduler(vllm_config(tmp_path, sequences=2), CAPACITY))
    driver.declare(zone("burst"), zone("calm"))
    for _ in range(30):
        driver.send("burst", prompt(3), max_tokens=4)
    driver.step()
    calm = driver.send("calm", prompt(3), max_tokens=4)
    for _ in range(9):
        driver.step()
    assert driver.finished[calm.request_id] == "length"
    driver.run()


def test_what_is_cached_costs_no_service(driver):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(10, seed=1))
    before = driver.zone("acme").account.service
    driver.ask("acme", prompt(10, seed=1))
    assert driver.zone("acme").account.service - before == 1 + 2


def test_an_unknown_tenant_is_registered_and_forgotten(driver):
    template = UnknownTenantTemplate(limit=20, idle=Idle(after_seconds=0, forget_after_seconds=0))
    driver.declare(zone("acme"), unknown_tenants=UnknownTenants(mode="AutoRegister", template=template))
    driver.ask("stranger", prompt(10, seed=1))
    stranger = driver.zone("stranger")
    assert (stranger.spec.quota.reserved, stranger.spec.quota.limit, stranger.held) == (0, 20, 10)
    driver.scheduler.let_time_pass()
    assert list(driver.scheduler.tenancy.ledger.zones) == ["acme"]
    assert driver.scheduler.block_pool.free_block_queue.num_free_blocks == CAPACITY
    assert driver.cached_tokens(driver.ask("stranger", prompt(10, seed=1))) == 0


def test_a_release_in_steps_leaves_the_beginnings_of_prompts_longest(driver):
    idle = Idle(after_seconds=0, release=Release(share="50%", every_seconds=1000.0))
    driver.declare(zone("acme", idle=idle))
    driver.ask("acme", prompt(20, seed=1))
    driver.scheduler.let_time_pass()
    acme = driver.zone("acme")
    assert (acme.quiet, acme.held) == (True, 20)
    # As if it had been silent for that long. A config that changes a zone makes the scheduler look at it.
    acme.born -= 1000.0
    acme.last_active -= 1000.0
    driver.declare(zone("acme", weight=2, idle=idle))
    driver.scheduler.let_time_pass()
    assert (acme.held, acme.counters.evicted) == (10, {"idle": 10})
    assert driver.scheduler.block_pool.free_block_queue.num_free_blocks == CAPACITY - 10
    assert driver.cached_tokens(driver.ask("acme", prompt(20, seed=1))) == 10 * BLOCK_TOKENS


def test_an_unknown_tenant_has_what_its_level_reserves_or_the_report_says_what_it_awaits(driver):
    gold = TenantLevel(name="gold", tenants=("gold-*",), reserved="60%", weight=2)
    driver.declare(zone("acme"), unknown_tenants=UnknownTenants(mode="AutoRegister", levels=(gold,)))
    for tenant in ("gold-1", "gold-2", "stranger"):
        driver.ask(tenant, prompt(10, seed=1))
    report = make_report(driver.served, ConfigStatus(), pod="p", started_unix_time=0.0)
    reported = {zone.tenant: (zone.level, zone.reserved, zone.awaited_reservation) for zone in report.zones}
    assert reported == {
        "acme": ("", 0, 0),
        "gold-1": ("gold", 60, 0),
        "gold-2": ("gold", 0, 60),
        "stranger": ("", 0, 0),
    }
    # 70 are free, 10 are its own, and 50 stay available for gold-1.
    assert driver.scheduler.block_pool.available_to(driver.zone("stranger")) == 30


def test_with_no_zone_declared_unknown_tenants_are_still_registered(driver):
    driver.declare(unknown_tenants=UnknownTenants(mode="AutoRegister"))
    driver.ask("stranger", prompt(10, seed=1))
    assert driver.zone("stranger").held == 10
    past_the_frontend = driver.ask(None, prompt(3))
    assert driver.finished[past_the_frontend.request_id] == "error"


def test_background_eviction_keeps_blocks_free_between_the_watermarks(driver):
    marks = Watermarks(low=0.1, high=0.3)
    driver.declare(zone("acme", reserved=20), zone("burst", priority=-1), watermarks=marks)
    driver.ask("acme", prompt(25, seed=1))
    driver.ask("burst", prompt(70))
    driver.scheduler.let_time_pass()
    assert driver.scheduler.block_pool.free_block_queue.num_free_blocks == 30
    assert driver.zone("burst").counters.evicted == {"watermark": 25}
    driver.check()


def test_a_hit_prefix_outlives_a_scan_with_clock_and_not_with_lru(driver):
    driver.declare(zone("clock", limit=40, eviction_policy="Clock"), zone("lru", limit=40))
    for tenant in ("clock", "lru"):
        driver.ask(tenant, prompt(10, seed=1))
        driver.ask(tenant, prompt(10, seed=1))
        for _ in range(2):
            driver.ask(tenant, prompt(20))
    assert driver.cached_tokens(driver.ask("clock", prompt(10, seed=1))) == 10 * BLOCK_TOKENS
    assert driver.cached_tokens(driver.ask("lru", prompt(10, seed=1))) == 0


def test_requests_from_before_the_first_zone_yield_to_an_entitled_one(driver):
    early = [driver.send(None, prompt(18), max_tokens=20) for _ in range(4)]
    driver.step()
    driver.declare(zone("acme", reserved=60))
    entitled = driver.send("acme", prompt(40))
    driver.step()
    driver.step()
    assert entitled.request_id in driver.finished
    driver.run()
    assert [request.num_output_tokens for request in early] == [20] * 4


def test_zones_that_wait_for_each_others_caches_get_them(driver):
    """Both are active, and each caches what the other's request needs."""
    driver.declare(zone("acme", reserved=40), zone("burst", reserved=40))
    for tenant in ("acme", "burst"):
        driver.ask(tenant, prompt(45))
    requests = [driver.send(tenant, prompt(56)) for tenant in ("acme", "burst")]
    driver.run()
    assert [driver.finished[request.request_id] for request in requests] == ["length", "length"]
    assert sum(driver.zone(tenant).counters.evicted.get("relief", 0) for tenant in ("acme", "burst")) >= 2


def test_a_request_from_before_the_first_zone_gets_what_active_zones_only_cache(driver):
    early = driver.send(None, prompt(30), max_tokens=40)
    driver.step()
    driver.declare(zone("acme", reserved=40), zone("burst"))
    driver.ask("acme", prompt(39))
    driver.send("burst", prompt(25), max_tokens=2)
    driver.step()
    run_with_time(driver)
    assert driver.finished[early.request_id] == "length"


def zeroed(driver):
    return set(driver.scheduler.schedule().new_block_ids_to_zero or ())


@pytest.mark.parametrize("scrub", ["OnTransfer", "Never"])
def test_a_block_that_comes_to_another_zone_is_zeroed_if_its_zone_says_so(driver, scrub):
    driver.declare(zone("acme", limit=50, scrub=scrub), zone("burst"))
    driver.ask("acme", prompt(50 - 1))
    acme = set(driver.zone("acme").cached)
    driver.declare(zone("acme", limit=0, scrub=scrub), zone("burst"))
    request = driver.send("burst", prompt(99))
    blocks_zeroed = zeroed(driver)
    taken = {block.block_id for block in driver.scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0]}
    assert acme <= taken
    assert acme & blocks_zeroed == (acme if scrub == "OnTransfer" else set())
    assert blocks_zeroed <= taken


def test_a_block_that_comes_back_to_its_own_zone_is_not_zeroed(driver):
    driver.declare(zone("acme", limit=20, scrub="OnTransfer"))
    driver.ask("acme", prompt(15))
    driver.send("acme", prompt(15))
    assert zeroed(driver) == set()


def test_a_new_tenant_gets_its_share_of_a_pool_that_another_one_has_filled(driver):
    """By weight; beyond that, an active tenant's cache is its own."""
    driver.declare(zone("first", weight=3), zone("second"))
    for _ in range(9):
        driver.ask("first", prompt(10))
    requests = [driver.send("second", prompt(7), max_tokens=3) for _ in range(9)]
    most = 0
    while driver.scheduler.has_unfinished_requests():
        driver.step()
        most = max(most, driver.zone("second").in_use)
    assert most == 24, "a quarter of 100 holds three requests of 8 blocks"
    assert driver.zone("first").held >= 75
    assert {driver.finished[request.request_id] for request in requests} == {"length"}


def test_who_shares_a_block_that_was_computed_twice_is_looked_at_when_the_cached_one_goes(config):
    """Both copies are there: it counts the cached one as a block to take. When that goes, it shares the other one."""
    driver = Driver(make_scheduler(config, 36))
    driver.declare(zone("chat", limit=26), zone("gold", reserved=20, idle=Idle(after_seconds=0)))
    tokens = prompt(2, extra=0)
    first, second = (driver.send("chat", tokens, max_tokens=330) for _ in range(2))
    for _ in range(16 * 8 + 1):
        driver.step()
    driver.scheduler.finish_requests(first.request_id, RequestStatus.FINISHED_ABORTED)
    answer = list(second.all_token_ids)[: 10 * BLOCK_TOKENS]
    waiting = driver.send("chat", answer + prompt(7, extra=8), max_tokens=2)
    driver.step()
    assert waiting.num_computed_tokens == 0
    driver.send("gold", prompt(19), max_tokens=2)
    for _ in range(6):
        driver.step()
        driver.scheduler.let_time_pass()
    assert waiting.num_computed_tokens > 0
    assert not second.is_finished()
