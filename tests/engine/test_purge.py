"""A purge in vLLM's own scheduler: no request finds what was computed before it, and later results are found."""

import pytest
from vllm.config import KVEventsConfig
from vllm.v1.core.sched.interface import PauseState

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.reports.zone_report import PurgeReport
from tenantzone_contract.zone_config.config import ConfigError
from tenantzone_runtime.engine.core import beside_steps
from tenantzone_runtime.housekeeping.report.reporting import make_report
from tenantzone_runtime.zones.audit.events import Evicted, Purged
from tests.engine.measured import counters, zone
from tests.engine.pauses import in_each_pause

CAPACITY = 100


@pytest.fixture
def driver(tmp_path):
    config = vllm_config(tmp_path, max_batched_tokens=512)
    config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    driver = Driver(make_scheduler(config, CAPACITY))
    driver.declare(zone("acme"), zone("burst"))
    yield driver
    driver.scheduler.shutdown()


def purge(driver, *ids, **fields):
    """Purges acme, once for each id."""
    for each in ids:
        driver.declare(zone("acme", purge=each, **fields), zone("burst"))


def found(driver, tokens, tenant="acme", **arguments):
    """Tokens of a new request's prompt that were cached."""
    return driver.cached_tokens(driver.ask(tenant, tokens, **arguments))


def begin(driver, tokens, steps=2, **arguments):
    """A running request."""
    request = driver.send("acme", tokens, **arguments)
    for _ in range(steps):
        driver.step()
    return request


def hashed(driver, tenant="acme"):
    """Blocks of a tenant that a request could find."""
    pool = driver.scheduler.block_pool
    return [
        each
        for each in pool.blocks
        if each.block_hash is not None and pool.ledger.owner[each.block_id].spec.tenant == tenant
    ]


def receipt(driver):
    report = make_report(driver.served, ConfigStatus(), pod="p", started_unix_time=0.0)
    return {each.tenant: each for each in report.zones}["acme"].purge


def test_what_is_cached_goes_and_only_that_of_the_zone(driver):
    for tenant in ("acme", "burst"):
        driver.ask(tenant, prompt(10, seed=3))
    purge(driver, "one")
    assert receipt(driver) == PurgeReport(id="one", evicted=10)
    assert counters(driver).evicted == {"purge": 10}
    assert driver.zone("acme").state == "Evicted"
    assert found(driver, prompt(10, seed=3)) == 0
    assert found(driver, prompt(10, seed=3)) > 0
    assert found(driver, prompt(10, seed=3), "burst") > 0


def test_what_a_request_uses_is_found_by_no_other_and_free_once_it_is_let_go(driver):
    driver.ask("acme", prompt(5, seed=1))
    request = begin(driver, prompt(10, seed=2), max_tokens=40)
    purge(driver, "one")
    assert receipt(driver) == PurgeReport(id="one", evicted=5, withdrawn=10)
    assert hashed(driver) == []
    assert found(driver, prompt(10, seed=2)) == 0
    driver.run()
    assert request.num_output_tokens == 40
    # Of the later request only.
    assert driver.zone("acme").held == 10
    assert found(driver, prompt(10, seed=2)) > 0


def test_nothing_of_a_request_that_had_begun_is_cached_however_much_it_computes_later(driver):
    request = begin(driver, prompt(60, seed=2), steps=1)
    assert request.num_computed_tokens < request.num_prompt_tokens
    purge(driver, "one")
    driver.run()
    assert driver.zone("acme").held == 0
    assert found(driver, prompt(60, seed=2)) == 0


def test_a_request_that_is_preempted_and_resumes_is_not_cached_either(driver):
    request = begin(driver, prompt(10, seed=2), max_tokens=40)
    driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    purge(driver, "one")
    driver.run()
    assert driver.finished[request.request_id] == "length"
    assert driver.zone("acme").held == 0


def test_a_request_that_waits_is_cached_as_usual(driver):
    driver.send("acme", prompt(10, seed=2))
    driver.scheduler.waiting.front(driver.zone("acme"))
    purge(driver, "one")
    driver.run()
    assert found(driver, prompt(10, seed=2)) > 0


def test_a_prefix_that_is_computed_again_while_the_old_one_is_in_use_outlives_it(driver):
    begin(driver, prompt(10, seed=2), max_tokens=40)
    purge(driver, "one")
    driver.send("acme", prompt(10, seed=2), max_tokens=1)
    driver.step()
    purge(driver, "one")
    driver.run()
    assert found(driver, prompt(10, seed=2)) > 0


def test_an_id_is_carried_out_once_and_another_one_again(driver):
    driver.ask("acme", prompt(10, seed=3))
    purge(driver, "one")
    driver.ask("acme", prompt(10, seed=3))
    purge(driver, "one", "", "one")
    assert len(hashed(driver)) == 10
    purge(driver, "two")
    assert hashed(driver) == []
    events = driver.scheduler.tenancy.ledger.trail.collect()
    assert [each for each in events if isinstance(each, Purged)] == [
        Purged("acme", "one", 10, 0),
        Purged("acme", "two", 10, 0),
    ]
    assert Evicted("acme", 20, "purge", None) in events


def test_an_engine_that_begins_with_a_purge_has_carried_it_out(driver):
    driver.declare()
    purge(driver, "one")
    assert receipt(driver) == PurgeReport(id="one")
    driver.ask("acme", prompt(10, seed=3))
    purge(driver, "one")
    assert len(hashed(driver)) == 10


def test_a_zone_that_is_declared_again_while_its_requests_run_forgets_them(driver):
    begin(driver, prompt(10, seed=2), max_tokens=40)
    driver.declare(zone("burst"))
    purge(driver, "one")
    assert receipt(driver) == PurgeReport(id="one", withdrawn=10)
    assert found(driver, prompt(10, seed=2)) == 0


def test_a_paused_engine_forgets(driver):
    begin(driver, prompt(10, seed=2), max_tokens=40)
    driver.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    purge(driver, "one")
    assert hashed(driver) == []


def test_each_block_is_reported_as_gone(driver):
    driver.ask("acme", prompt(10, seed=3))
    begin(driver, prompt(10, seed=2), max_tokens=40)
    driver.scheduler.kv_cache_manager.take_events()
    purge(driver, "one")
    events = driver.scheduler.kv_cache_manager.take_events()
    assert [type(each).__name__ for each in events] == ["BlockRemoved"] * 20


def test_from_its_first_moment_on_nothing_old_is_found_while_steps_go_on(driver, monkeypatch):
    driver.ask("acme", prompt(40, seed=3))
    begin(driver, prompt(10, seed=2), max_tokens=200)
    driver.scheduler.kv_cache_manager.take_events()
    hits = []

    def ask():
        with driver.scheduler.zone_lock:
            if driver.zone("acme").purge is None:
                return
        for seed in (2, 3):
            request = driver.send("acme", prompt(5, seed=seed))
            while request.request_id not in driver.finished:
                driver.step()
            hits.append((seed, driver.cached_tokens(request)))

    monkeypatch.setattr(beside_steps, "BLOCKS_AT_ONCE", 7)
    with in_each_pause(monkeypatch, ask) as pauses:
        purge(driver, "one")
    assert len(pauses) > 5
    first = dict(reversed(hits))
    assert first == {2: 0, 3: 0}
    driver.check()
    driver.run()


def test_a_thousand_zones_are_purged_at_once(driver):
    names = [f"tenant-{number}" for number in range(1000)]
    driver.declare(*map(zone, names))
    for name in names[:40]:
        driver.ask(name, prompt(2, seed=3))
    driver.declare(*(zone(name, purge="all") for name in names))
    assert driver.scheduler.block_pool.ledger.held_blocks == 0
    events = driver.scheduler.tenancy.ledger.trail.collect()
    assert sum(each.evicted for each in events if isinstance(each, Purged)) == 80


def test_a_purge_that_fails_in_the_midst_is_carried_out_with_the_next_config(driver, monkeypatch):
    driver.ask("acme", prompt(10, seed=3))
    begin(driver, prompt(10, seed=2), max_tokens=40)
    pool = driver.scheduler.block_pool
    with monkeypatch.context() as patch:
        patch.setattr(pool, "forget_withdrawn", lambda at_once: (_ for _ in ()).throw(ConfigError("no")))
        with pytest.raises(ConfigError):
            purge(driver, "one")
    assert receipt(driver) is None
    purge(driver, "one")
    assert receipt(driver) == PurgeReport(id="one", evicted=10, withdrawn=10)
    assert hashed(driver) == []


def test_what_another_tenant_gets_of_it_is_zeroed_and_counted(driver):
    driver.declare(zone("acme", scrub="OnTransfer"), zone("burst"))
    driver.ask("acme", prompt(10, seed=3))
    purge(driver, "one", scrub="OnTransfer")

    def scrubbing():
        report = make_report(driver.served, ConfigStatus(), pod="p", started_unix_time=0.0)
        found = {each.tenant: each for each in report.zones}["acme"]
        return found.scrubbed_blocks, found.unscrubbed_blocks

    assert scrubbing() == (0, 11)
    driver.ask("burst", prompt(4, seed=1))
    scrubbed, left = scrubbing()
    assert scrubbed > 0
    assert scrubbed + left == 11
