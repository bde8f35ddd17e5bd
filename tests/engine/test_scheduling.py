"""Zones inside vLLM's real scheduler and block pool; the model's tokens are made up."""

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, SALT_KEY, SEAL_KEY, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.keys.salt import tenant_salt
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle, Lending
from tenantzone_runtime.seal import seal

CAPACITY = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def flood(driver, tenant, *, requests=30, blocks=10):
    for _ in range(requests):
        driver.send(tenant, prompt(blocks))
    driver.run()


def test_without_zones_a_request_is_cached_and_hit_as_in_stock(driver, config):
    stock = Driver(make_scheduler(config, CAPACITY, zones=False))
    for each in (driver, stock):
        each.ask(None, prompt(6, seed=1))
        flood(each, None, requests=5)
    assert driver.cached_tokens(driver.ask(None, prompt(6, seed=1))) == 6 * BLOCK_TOKENS
    assert stock.cached_tokens(stock.ask(None, prompt(6, seed=1))) == 6 * BLOCK_TOKENS
    pool, stock_pool = driver.scheduler.block_pool, stock.scheduler.kv_cache_manager.block_pool
    order, stock_order = (
        [block.block_id for block in each.free_block_queue.get_all_free_blocks()] for each in (pool, stock_pool)
    )
    assert order == stock_order


def test_a_prefix_is_hit_by_its_own_tenant_only(driver):
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(6, seed=1))
    assert driver.cached_tokens(driver.ask("burst", prompt(6, seed=1))) == 0
    assert driver.cached_tokens(driver.ask("acme", prompt(6, seed=1))) == 6 * BLOCK_TOKENS
    assert driver.cached_tokens(driver.ask("burst", prompt(6, seed=1))) == 6 * BLOCK_TOKENS


def test_equal_hashes_in_two_zones_do_not_meet(driver):
    """The index alone keeps zones apart, even if the salts were equal."""
    driver.declare(zone("acme"), zone("burst"))
    first = driver.ask("acme", prompt(6, seed=1))
    second = driver.send("burst", prompt(6, seed=1))
    second.block_hashes = list(first.block_hashes)
    driver.run()
    assert driver.cached_tokens(second) == 0


def test_a_clients_salt_divides_its_own_zone(driver):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(6, seed=1), client_salt="a")
    assert driver.cached_tokens(driver.ask("acme", prompt(6, seed=1), client_salt="b")) == 0
    assert driver.cached_tokens(driver.ask("acme", prompt(6, seed=1), client_salt="a")) == 6 * BLOCK_TOKENS


def test_a_reservation_survives_a_flood(driver):
    driver.declare(zone("acme", reserved="40%"), zone("burst", limit="60%"))
    driver.ask("acme", prompt(30, seed=1))
    flood(driver, "burst")
    assert driver.cached_tokens(driver.ask("acme", prompt(30, seed=1))) == 30 * BLOCK_TOKENS
    assert driver.zone("acme").counters.evicted == {}


def test_the_same_flood_takes_it_from_a_tenant_without_zones(driver):
    driver.ask(None, prompt(30, seed=1), client_salt="acme")
    for _ in range(30):
        driver.send(None, prompt(10), client_salt="burst")
    driver.run()
    assert driver.cached_tokens(driver.ask(None, prompt(30, seed=1), client_salt="acme")) == 0


def test_an_active_zones_cache_is_safe_from_surplus_even_without_a_reservation(driver):
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(30, seed=1))
    flood(driver, "burst")
    assert driver.cached_tokens(driver.ask("acme", prompt(30, seed=1))) == 30 * BLOCK_TOKENS


def test_a_quiet_zone_lends_down_to_what_it_keeps(driver):
    driver.declare(zone("acme", reserved=40, lending=Lending(lendable=15), idle=Idle(after_seconds=0)), zone("burst"))
    driver.ask("acme", prompt(30, seed=1))
    driver.scheduler.let_time_pass()
    driver.ask("burst", prompt(74, seed=2))
    acme = driver.zone("acme")
    assert acme.held == 25
    assert acme.counters.evicted == {"quiet": 5}
    # The oldest blocks of a prefix go last, so the remaining ones are still a prefix.
    assert driver.cached_tokens(driver.ask("acme", prompt(30, seed=1))) == 25 * BLOCK_TOKENS


def test_the_lowest_priority_is_evicted_first(driver):
    quiet = Idle(after_seconds=0)
    driver.declare(zone("gold", priority=5, idle=quiet), zone("lead", priority=-5, idle=quiet), zone("burst"))
    driver.ask("gold", prompt(30, seed=1))
    driver.ask("lead", prompt(30, seed=2))
    driver.scheduler.let_time_pass()
    driver.ask("burst", prompt(60))
    assert (driver.zone("gold").held, driver.zone("lead").held) == (30, 9)


def test_a_zone_past_its_limit_turns_over_its_own_cache(driver):
    driver.declare(zone("burst", limit=20))
    driver.ask("burst", prompt(12, seed=1))
    driver.ask("burst", prompt(12, seed=2))
    burst = driver.zone("burst")
    assert burst.held <= 20
    assert burst.counters.evicted == {"limit": 5}
    assert driver.cached_tokens(driver.ask("burst", prompt(12, seed=2))) == 12 * BLOCK_TOKENS


def test_a_tenant_at_its_limit_delays_no_other(driver):
    driver.declare(zone("acme"), zone("burst", limit=20))
    for _ in range(4):
        driver.send("burst", prompt(15), max_tokens=20)
    driver.step()
    late = driver.send("acme", prompt(5))
    driver.step()
    assert late.request_id in driver.finished
    driver.run()


def test_an_entitled_zone_gets_its_blocks_in_the_next_step(driver):
    """Reclaim: running requests that use the reservation are preempted, and finish later."""
    driver.declare(zone("acme", reserved=40, idle=Idle(after_seconds=0)), zone("burst"))
    driver.scheduler.let_time_pass()
    borrowers = [driver.send("burst", prompt(18), max_tokens=60) for _ in range(5)]
    driver.step()
    driver.step()
    assert driver.zone("burst").in_use >= 90
    entitled = driver.send("acme", prompt(35))
    driver.step()
    assert driver.zone("acme").counters.prompt_tokens == 35 * BLOCK_TOKENS + 1
    assert entitled.request_id in driver.finished
    assert driver.zone("burst").counters.preemptions > 0
    driver.run()
    assert all(borrower.num_output_tokens == 60 for borrower in borrowers)


def test_a_growing_request_at_its_limit_preempts_its_own_zone_only(driver):
    driver.declare(zone("acme"), zone("burst", limit=20))
    burst = [driver.send("burst", prompt(9), max_tokens=40) for _ in range(2)]
    driver.step()
    acme = driver.send("acme", prompt(5), max_tokens=60)
    driver.run()
    assert driver.zone("burst").counters.preemptions > 0
    assert driver.zone("acme").counters.preemptions == 0
    assert acme.num_output_tokens == 60
    assert [request.num_output_tokens for request in burst] == [40, 40]


def test_a_limit_bounds_the_length_of_a_request(driver):
    driver.declare(zone("burst", limit=4))
    too_long = driver.ask("burst", prompt(4))
    capped = driver.ask("burst", prompt(3), max_tokens=100)
    assert driver.finished[too_long.request_id] == "error"
    assert driver.finished[capped.request_id] == "length"
    assert capped.num_tokens == 4 * BLOCK_TOKENS


@pytest.mark.parametrize("tenant", [None, "stranger"], ids=["past the frontend", "of a tenant without a zone"])
def test_a_request_that_is_not_bound_is_finished_with_an_error(driver, tenant):
    driver.declare(zone("acme"))
    request = driver.ask(tenant, prompt(3))
    assert driver.finished[request.request_id] == "error"
    assert request.num_computed_tokens == 0


@pytest.mark.parametrize(
    "sealed",
    [
        pytest.param(seal(b"other key".ljust(32), "acme", tenant_salt(SALT_KEY, "acme")), id="with another key"),
        pytest.param(seal(SEAL_KEY, "acme", tenant_salt(SALT_KEY, "burst")), id="for another salt"),
        pytest.param(seal(SEAL_KEY, "acme", tenant_salt(SALT_KEY, "acme"), now=0), id="long ago"),
        pytest.param("acme", id="not sealed"),
    ],
)
def test_a_request_that_was_not_sealed_for_it_is_finished_with_an_error(driver, sealed):
    driver.declare(zone("acme"))
    request = driver.send("acme", prompt(3), sealed=sealed)
    driver.run()
    assert driver.finished[request.request_id] == "error"


def test_the_seal_is_taken_out_on_arrival(driver):
    """Nothing after the scheduler needs it, and a removed seal can't leak."""
    driver.declare(zone("acme"))
    assert not driver.ask("acme", prompt(3)).sampling_params.extra_args


def test_requests_from_before_the_first_zone_finish(driver):
    early = driver.send(None, prompt(20), max_tokens=50)
    driver.step()
    driver.declare(zone("acme", reserved="50%"))
    driver.ask("acme", prompt(10))
    driver.run()
    assert early.num_output_tokens == 50


def test_a_request_that_can_grow_no_further_does_not_hold_up_those_behind_it(driver):
    """Requests without a zone, which are never preempted, may use what an entitled zone lacks."""
    elsewhere = driver.scheduler.block_pool.get_new_blocks(66)
    driver.declare(zone("acme", reserved=50), zone("calm", reserved=10))
    stuck = driver.send("acme", prompt(30, extra=BLOCK_TOKENS - 1), max_tokens=250)
    behind = driver.send("calm", prompt(2), max_tokens=BLOCK_TOKENS - 1)
    for _ in range(2 * BLOCK_TOKENS):
        driver.step()
    assert behind.num_output_tokens == BLOCK_TOKENS - 1
    assert stuck.num_output_tokens < 250
    driver.scheduler.block_pool.free_blocks(elsewhere)
    driver.run()
    assert stuck.num_output_tokens == 250


def test_lowering_a_limit_evicts_cache_at_once_and_kills_nothing(driver):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(30, seed=1))
    running = driver.send("acme", prompt(10), max_tokens=30)
    driver.step()
    driver.declare(zone("acme", limit=15))
    assert driver.zone("acme").held <= 15
    assert driver.zone("acme").in_use >= 10
    driver.run()
    assert running.num_output_tokens == 30


def test_a_limit_below_what_runs_holds_as_soon_as_that_has_finished(driver):
    driver.declare(zone("acme"))
    running = [driver.send("acme", prompt(10), max_tokens=30) for _ in range(3)]
    driver.step()
    driver.declare(zone("acme", limit=4))
    driver.run()
    assert [request.num_output_tokens for request in running] == [30, 30, 30]
    assert driver.zone("acme").held == 4


def test_a_removed_zone_finishes_what_runs_and_frees_all(driver):
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(20, seed=1))
    running = driver.send("acme", prompt(10), max_tokens=30)
    driver.step()
    driver.declare(zone("burst"))
    refused = driver.send("acme", prompt(3))
    driver.run()
    assert running.num_output_tokens == 30
    assert driver.finished[refused.request_id] == "error"
    assert list(driver.scheduler.block_pool.ledger.zones) == ["burst"]
    assert driver.scheduler.block_pool.free_block_queue.num_free_blocks == CAPACITY


def test_a_removed_zone_that_comes_back_keeps_running_requests(driver):
    driver.declare(zone("acme"), zone("burst"))
    running = driver.send("acme", prompt(10), max_tokens=30)
    driver.step()
    driver.declare(zone("burst"))
    driver.declare(zone("acme", reserved=30), zone("burst"))
    driver.run()
    assert running.num_output_tokens == 30
    assert driver.zone("acme").held > 0


def test_a_config_that_does_not_fit_is_enforced_as_far_as_it_does(driver):
    driver.declare(zone("acme", reserved=60))
    driver.ask("acme", prompt(30, seed=1))
    driver.declare(zone("acme", reserved=60), zone("burst", reserved=50), zone("calm", reserved=60, limit="50%"))
    held = {name: driver.zone(name).spec.quota.reserved for name in ("acme", "burst", "calm")}
    assert held == {"acme": 60, "burst": 0, "calm": 0}
    assert driver.cached_tokens(driver.ask("acme", prompt(30, seed=1))) == 30 * BLOCK_TOKENS


def test_states(driver):
    driver.declare(zone("acme", idle=Idle(after_seconds=0, evict_after_seconds=0)))
    acme = driver.zone("acme")
    assert acme.state == "Idle"
    driver.send("acme", prompt(10, seed=1), max_tokens=3)
    assert acme.state == "Active"
    driver.run()
    assert acme.state == "Idle"
    driver.scheduler.let_time_pass()
    assert (acme.state, acme.held, acme.counters.evicted) == ("Evicted", 0, {"idle": 10})
    request = driver.send("acme", prompt(10, seed=1))
    assert acme.state == "Active"
    driver.run()
    assert driver.cached_tokens(request) == 0


@pytest.mark.shows("`reset_prefix_cache`")
def test_resetting_the_prefix_cache_forgets_every_zones(driver):
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(10, seed=1))
    running = driver.send("burst", prompt(10, seed=1), max_tokens=5)
    driver.step()
    assert not driver.scheduler.reset_prefix_cache()
    driver.run()
    assert running.num_output_tokens == 5
    assert driver.scheduler.reset_prefix_cache()
    assert driver.cached_tokens(driver.ask("acme", prompt(10, seed=1))) == 0


def test_aborted_requests_leave_nothing_behind(driver):
    from vllm.v1.request import RequestStatus

    driver.declare(zone("acme"))
    requests = [driver.send("acme", prompt(20), max_tokens=50) for _ in range(8)]
    driver.step()
    driver.scheduler.finish_requests([request.request_id for request in requests], RequestStatus.FINISHED_ABORTED)
    driver.run()
    assert (driver.zone("acme").requests, driver.zone("acme").in_use) == (0, 0)


@pytest.mark.shows("refused by request")
def test_a_session_that_may_get_more_input_is_refused_where_zones_are_declared(driver):
    driver.declare(zone("acme"))
    request = driver.send("acme", prompt(3), resumable=True)
    driver.run()
    assert driver.finished[request.request_id] == "error"
