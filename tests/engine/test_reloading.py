"""A config whose application fails in the middle for a reason that is not in the config."""

import logging
from types import SimpleNamespace

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_runtime.engine.patches import scrubbing
from tenantzone_runtime.housekeeping import reloading
from tenantzone_runtime.housekeeping.reloading import Reloading
from tenantzone_runtime.zones.config import configure

CAPACITY = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


@pytest.fixture
def refused():
    return []


@pytest.fixture
def loading(driver, tmp_path, refused):
    return Reloading(driver.served, tmp_path, lambda *reported: refused.append(reported))


@pytest.fixture
def defect(monkeypatch):
    """While a tenant is in this set, its zone can't be added, though nothing is wrong with it."""
    tenants = set()
    add_zone = configure.add_zone

    def fail(ledger, spec):
        if spec.tenant in tenants:
            raise RuntimeError(f"{spec.tenant} is bad luck")
        return add_zone(ledger, spec)

    monkeypatch.setattr(configure, "add_zone", fail)
    return tenants


@pytest.fixture
def cannot_scrub(monkeypatch):
    """A GPU without --scrub-blocks: a zone with scrubbing can't be enforced."""
    monkeypatch.setattr(scrubbing, "current_platform", SimpleNamespace(is_cpu=lambda: False))


@pytest.fixture
def at_once(monkeypatch):
    """Makes every retry happen in the next turn."""
    monkeypatch.setattr(reloading, "RETRY_SECONDS", 0.0)


def write(folder, generation, *zones, text=None):
    pool = PoolConfig(namespace="team", name="shared")
    (folder / "new").write_text(dump_config(make_config(generation, pool, zones)) if text is None else text)
    (folder / "new").rename(folder / "config.json")


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def declared(driver):
    return {zone.spec.tenant: zone.spec.quota.reserved for zone in driver.scheduler.tenancy.ledger.zones.values()}


def test_what_can_not_be_applied_leaves_the_config_before_in_force_and_whole(driver, loading, tmp_path, defect):
    write(tmp_path, 1, zone("acme", reserved=60), zone("burst"))
    loading.turn()
    driver.ask("acme", prompt(50))
    driver.ask("burst", prompt(20))
    defect.add("trouble")
    write(tmp_path, 2, zone("acme", reserved=20, limit=30), zone("extra", reserved=10), zone("trouble"))
    assert loading.turn()
    assert declared(driver) == {"acme": 60, "burst": 0}
    assert driver.zone("acme").spec.quota.limit == CAPACITY
    driver.check()
    status = loading.status
    assert (status.applied_generation, status.rejected.generation) == (1, 2)
    assert status.rejected.error == "it could not be applied, and is tried again: RuntimeError: trouble is bad luck"
    assert loading.reloads == {"applied": 1, "rejected": 1}


def test_blocks_that_it_evicted_before_it_failed_are_free(driver, loading, tmp_path, defect):
    write(tmp_path, 1, zone("acme"), zone("burst"))
    loading.turn()
    driver.ask("acme", prompt(50))
    defect.add("trouble")
    write(tmp_path, 2, zone("acme", limit=10), zone("trouble"))
    loading.turn()
    assert driver.scheduler.block_pool.free_block_queue.num_free_blocks == CAPACITY - 10
    driver.check()
    again = driver.ask("acme", prompt(90))
    assert driver.finished[again.request_id] == "length"


def test_it_is_tried_again_until_it_works(driver, loading, tmp_path, defect, at_once, refused):
    write(tmp_path, 1, zone("acme"))
    loading.turn()
    defect.add("trouble")
    write(tmp_path, 2, zone("acme"), zone("trouble"))
    for _ in range(3):
        loading.turn()
        assert loading.status.applied_generation == 1
    defect.clear()
    assert loading.turn()
    assert set(declared(driver)) == {"acme", "trouble"}
    assert (loading.status.applied_generation, loading.status.rejected) == (2, None)
    assert loading.reloads == {"applied": 2, "rejected": 1}
    assert not loading.turn(), "and is left alone from then on"
    assert [generation for generation, _ in refused] == [2]


def test_it_is_not_tried_again_in_each_turn(driver, loading, tmp_path, defect):
    defect.add("trouble")
    write(tmp_path, 1, zone("trouble"))
    assert loading.turn()
    defect.clear()
    assert not any(loading.turn() for _ in range(20))
    assert declared(driver) == {}


def test_each_failure_waits_longer_for_the_next_try(loading, tmp_path, defect, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reloading.time, "monotonic", lambda: now[0])
    defect.add("trouble")
    write(tmp_path, 1, zone("trouble"))
    loading.turn()
    tried = []
    while len(tried) < 8:
        now[0] += 1.0
        if loading.turn():
            tried.append(now[0])
    waits = [after - before for before, after in zip([0.0, *tried], tried, strict=False)]
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


def test_it_is_logged_and_reported_once_and_again_if_the_error_is_another(
    loading, tmp_path, defect, at_once, refused, caplog
):
    write(tmp_path, 1, zone("acme"))
    loading.turn()
    defect.update(("trouble", "worse"))
    write(tmp_path, 2, zone("trouble"), zone("worse"))
    caplog.set_level(logging.ERROR)
    for _ in range(5):
        loading.turn()
    first = loading.status.rejected
    (record,) = caplog.records
    assert "trouble is bad luck" in record.getMessage()
    assert record.exc_info[0] is RuntimeError
    defect.remove("trouble")
    for _ in range(5):
        loading.turn()
    assert [record.getMessage().split(": ")[-1] for record in caplog.records] == [
        "trouble is bad luck",
        "worse is bad luck",
    ]
    assert [(generation, error.split(": ")[-1]) for generation, error in refused] == [
        (2, "trouble is bad luck"),
        (2, "worse is bad luck"),
    ]
    assert loading.reloads == {"applied": 1, "rejected": 2}
    assert loading.status.rejected.unix_time > first.unix_time


def test_a_new_config_is_not_kept_waiting_by_one_that_failed(driver, loading, tmp_path, defect):
    defect.add("trouble")
    write(tmp_path, 1, zone("acme"), zone("trouble"))
    loading.turn()
    assert (loading.status.applied_generation, loading.status.applied_hash) == (None, None)
    write(tmp_path, 2, zone("acme"))
    assert loading.turn()
    assert (loading.status.applied_generation, loading.status.rejected) == (2, None)
    assert set(declared(driver)) == {"acme"}


def test_what_could_not_be_put_back_either_is_said_to_be_in_force_in_part(
    driver, loading, tmp_path, defect, at_once, cannot_scrub
):
    write(tmp_path, 1, zone("acme"), zone("burst"))
    loading.turn()
    defect.update(("trouble", "burst"))
    write(tmp_path, 2, zone("acme", reserved=10), zone("trouble"))
    loading.turn()
    assert loading.status.applied_generation is None
    assert loading.status.rejected.error.endswith("in force in part: RuntimeError: burst is bad luck")
    write(tmp_path, 3, zone("acme", scrub="OnTransfer"))
    loading.turn()
    assert (loading.status.applied_generation, loading.status.rejected.generation) == (None, 3)
    defect.clear()
    loading.turn()
    assert declared(driver) == {"acme": 0, "burst": 0}, "nothing is wrong with the first config"
    assert (loading.status.applied_generation, loading.status.rejected.generation) == (1, 3)
    assert "scrub OnTransfer needs" in loading.status.rejected.error


def test_to_take_it_back_makes_the_config_before_whole(driver, loading, tmp_path, defect):
    write(tmp_path, 1, zone("acme"), zone("burst"))
    loading.turn()
    defect.update(("trouble", "burst"))
    write(tmp_path, 2, zone("acme", reserved=10), zone("trouble"))
    loading.turn()
    defect.discard("burst")
    write(tmp_path, 1, zone("acme"), zone("burst"))
    loading.turn()
    assert declared(driver) == {"acme": 0, "burst": 0}
    assert (loading.status.applied_generation, loading.status.rejected) == (1, None)


def test_nothing_is_changed_by_what_can_not_be_enforced(driver, loading, tmp_path, cannot_scrub):
    write(tmp_path, 1, zone("acme", reserved=60))
    loading.turn()
    audit = driver.scheduler.tenancy.ledger.trail.collect()
    assert [event.kind for event in audit][-1] == "config_applied"
    write(tmp_path, 2, zone("burst", reserved=10), zone("acme", reserved=20, scrub="OnTransfer"))
    loading.turn()
    assert declared(driver) == {"acme": 60}
    assert driver.scheduler.tenancy.ledger.trail.collect() == []
    assert (loading.status.applied_generation, loading.status.rejected.generation) == (1, 2)


def test_what_an_engine_is_too_small_for_is_enforced_as_far_as_it_fits_and_the_rest_is_named(
    driver, loading, tmp_path, caplog
):
    caplog.set_level(logging.WARNING, logger=reloading.__name__)
    write(tmp_path, 1, zone("old", reserved=60), zone("large", reserved=50), zone("young", reserved="40%"))
    loading.turn()

    assert declared(driver) == {"old": 60, "large": 0, "young": 40}
    assert (loading.status.applied_generation, loading.status.rejected) == (1, None)
    (warning,) = [record for record in caplog.records if record.name == reloading.__name__]
    assert warning.getMessage() == (
        "this engine has too few blocks for config 1: nothing is reserved here for large (50 blocks)"
    )


def test_of_many_zones_that_an_engine_is_too_small_for_some_are_named(loading, tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger=reloading.__name__)
    write(tmp_path, 1, *(zone(f"zone-{number}", reserved=CAPACITY + 1) for number in range(9)))
    loading.turn()
    (warning,) = [record for record in caplog.records if record.name == reloading.__name__]
    assert warning.getMessage().endswith("zone-4 (101 blocks) and 4 more")
