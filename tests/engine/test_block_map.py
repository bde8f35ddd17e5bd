"""The picture of the blocks of vLLM's real block pool; the model's tokens are made up."""

import itertools
import threading
from collections import Counter

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.cache.blocks import BlockMap, parse_block_map
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.housekeeping.report.block_map import take_block_map
from tenantzone_runtime.housekeeping.report.reporting import make_report

CAPACITY = 100
PICTURES = 50


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=4096)


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


def zone(tenant, **fields):
    return ZoneConfig(name=f"{tenant}-zone", tenant=tenant, generation=1, **fields)


def picture(driver, cells=4096) -> BlockMap:
    report = make_report(driver.served, ConfigStatus(), pod="engine-0", started_unix_time=0.0)
    taken = take_block_map(driver.served, report, cells)
    assert parse_block_map(taken.model_dump_json(by_alias=True)) == taken
    return taken


def kinds(taken: BlockMap) -> dict[tuple[str | None, str, bool], int]:
    return {(kind.tenant, kind.use, kind.borrowed): kind.blocks for kind in taken.kinds}


def cells(taken: BlockMap) -> list[tuple[str | None, str, bool]]:
    return [
        (taken.kinds[kind].tenant, taken.kinds[kind].use, taken.kinds[kind].borrowed)
        for kind, count in taken.runs
        for _ in range(count)
    ]


def test_an_empty_engine_is_free(driver):
    taken = picture(driver)
    assert (taken.pod, taken.capacity_blocks, taken.blocks_per_cell) == ("engine-0", CAPACITY, 1)
    assert kinds(taken) == {(None, "free", False): CAPACITY}
    assert taken.runs == ((0, CAPACITY),)


def test_blocks_from_before_any_zone_belong_to_none(driver):
    driver.ask(None, prompt(10))
    driver.send(None, prompt(5), max_tokens=9)
    driver.step()
    assert kinds(picture(driver)) == {
        (None, "in_use", False): 6,
        (None, "cached", False): 10,
        (None, "free", False): CAPACITY - 16,
    }


def test_each_zone_has_its_own_in_use_and_cached(driver):
    driver.declare(zone("acme", reserved=40), zone("burst", limit=60))
    driver.ask("acme", prompt(30))
    driver.ask("burst", prompt(20))
    driver.send("burst", prompt(10), max_tokens=9)
    driver.step()
    taken = picture(driver)
    assert kinds(taken) == {
        ("acme", "cached", False): 30,
        ("burst", "cached", False): 20,
        ("burst", "in_use", False): 11,
        (None, "free", False): CAPACITY - 61,
    }
    assert {kind.zone for kind in taken.kinds} == {"acme-zone", "burst-zone", None}
    owner = driver.scheduler.block_pool.ledger.owner
    assert [tenant for tenant, _, _ in cells(taken)] == [each.spec.tenant if each else None for each in owner[1:]]


def test_what_is_borrowed_is_what_would_go_first(driver):
    driver.declare(zone("acme", reserved=60, idle=Idle(after_seconds=0)), zone("burst"))
    driver.scheduler.let_time_pass()
    driver.ask("burst", prompt(50))
    driver.send("burst", prompt(20), max_tokens=60)
    driver.step()
    driver.scheduler.let_time_pass()
    (loan,) = driver.scheduler.tenancy.loans
    taken = picture(driver)
    assert kinds(taken)["burst", "cached", True] == loan.blocks
    borrowed = {number + 1 for number, (_, _, is_borrowed) in enumerate(cells(taken)) if is_borrowed}
    assert borrowed == set(list(driver.zone("burst").cached)[: loan.blocks])


def test_in_use_blocks_are_borrowed_only_when_no_cached_ones_are_left(driver):
    driver.declare(zone("acme", reserved=60, idle=Idle(after_seconds=0)), zone("burst"))
    driver.scheduler.let_time_pass()
    driver.ask("burst", prompt(10))
    driver.send("burst", prompt(70), max_tokens=60)
    driver.step()
    driver.scheduler.let_time_pass()
    (loan,) = driver.scheduler.tenancy.loans
    shown = kinds(picture(driver))
    assert loan.blocks > 10
    assert shown["burst", "cached", True] == 10
    assert shown["burst", "in_use", True] == loan.blocks - 10


@pytest.mark.parametrize("max_cells", [1, 7, 30, 99, 100])
def test_a_picture_has_no_more_cells_than_were_asked_for(driver, max_cells):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(40))
    taken = picture(driver, max_cells)
    assert len(cells(taken)) == -(-CAPACITY // taken.blocks_per_cell) <= max_cells
    assert sum(kind.blocks for kind in taken.kinds) <= CAPACITY


def test_pictures_taken_while_the_engine_works_show_every_block_once(driver):
    driver.declare(zone("acme", reserved=40, idle=Idle(after_seconds=0)), zone("burst", eviction_policy="Clock"))
    driver.scheduler.let_time_pass()
    is_over = threading.Event()
    failures = []
    seen = []

    def look():
        while not is_over.is_set():
            try:
                taken = picture(driver)
                assert len(cells(taken)) == CAPACITY
                assert Counter(cells(taken)) == kinds(taken)
            except Exception as error:
                failures.append(error)
                return
            seen.append(taken.runs)

    looking = [threading.Thread(target=look, daemon=True) for _ in range(3)]
    for thread in looking:
        thread.start()
    try:
        for seed in itertools.count():
            if failures or len(seen) >= PICTURES:
                break
            driver.send("burst", prompt(20 + seed % 40, seed=seed % 7), max_tokens=20)
            driver.send("acme", prompt(10, seed=seed % 3), max_tokens=3)
            while driver.scheduler.has_unfinished_requests():
                driver.step()
                driver.scheduler.let_time_pass()
                driver.check()
    finally:
        is_over.set()
        for thread in looking:
            thread.join(60)
    assert failures == []
    assert len(set(seen)) > 1, "the engine worked meanwhile"
