"""Our scheduler, KV cache manager and block pool pass what vLLM's own pass, without a zone and with one for all."""

import pytest

from hack.conformance.__main__ import REASONS
from hack.conformance.comparison import compare, describe, read_reasons
from hack.conformance.sides import IN_SHORT, NO_ZONE, TESTS, WITH_ONE_ZONE, run_sides
from hack.conformance.source import installed_vllm

IN_PLACE = """
from vllm.config import SchedulerConfig
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

def ours(name):
    return name.__module__.startswith("tenantzone_runtime.engine.")

def test_schedulers():
    assert ours(Scheduler) and ours(AsyncScheduler)
    assert not issubclass(Scheduler, AsyncScheduler)

def test_kv_cache_manager():
    assert ours(KVCacheManager)

def test_block_pool():
    assert ours(BlockPool)

def test_an_engine_that_runs_a_model():
    config = SchedulerConfig(max_model_len=16, is_encoder_decoder=False)
    for config.async_scheduling in (False, True):
        assert ours(config.get_scheduler_cls())
"""

ONE_ZONE_IN_PLACE = """
from vllm.v1.core.block_pool import BlockPool

from tests.v1.core.test_prefix_caching import make_kv_cache_config, make_kv_cache_manager, make_request, sha256
from tests.v1.core.utils import create_requests, create_scheduler

def the_zone(pool):
    (zone,) = pool.ledger.zones.values()
    assert zone.spec.quota.reserved == zone.spec.quota.limit == pool.capacity
    return zone

def test_a_pool():
    pool = BlockPool(num_gpu_blocks=11, enable_caching=True, hash_block_size=16)
    pool.get_new_blocks(3)
    assert the_zone(pool).in_use == 3

def test_a_manager():
    manager = make_kv_cache_manager(make_kv_cache_config(16, 11), max_model_len=8192, hash_block_size=16)
    request = make_request("0", [7] * 40, 16, sha256)
    assert manager.allocate_slots(request, 40) is not None
    assert request.zone is the_zone(manager.block_pool)
    assert request.zone.in_use == 3

def test_a_scheduler():
    scheduler = create_scheduler()
    (request,) = create_requests(num_requests=1, num_tokens=40)
    scheduler.add_request(request)
    assert request.zone is the_zone(scheduler.kv_cache_manager.block_pool)
    scheduler.schedule()
    assert request.zone.in_use == 3
"""

TAMPERED = """
from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool

def pytest_configure():
    free = ZoneBlockPool.free_blocks
    ZoneBlockPool.free_blocks = lambda pool, blocks: free(pool, list(blocks)[::-1])
"""


FORGETFUL = """
from vllm.v1.core.kv_cache_manager import KVCacheManager

from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager

ZoneKVCacheManager.get_computed_blocks = KVCacheManager.get_computed_blocks
"""


WRONG_ORDER = f"{TESTS}/test_prefix_caching.py::test_evict"
FOR_NO_ZONE = f"{TESTS}/test_prefix_caching.py::test_cache_key_salting"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The outcomes of all tests that do not take minutes, on all sides."""
    sides = {"stock": (), "no zone": NO_ZONE, "one zone": WITH_ONE_ZONE}
    return run_sides(tmp_path_factory.mktemp("conformance"), sides, IN_SHORT, keep_stock=True)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Outcomes where our classes break a rule: two tests of vLLM, and the tests that check which classes are tested."""
    folder = tmp_path_factory.mktemp("broken")
    places = {folder / "test_in_place.py": IN_PLACE, folder / "test_one_zone_in_place.py": ONE_ZONE_IN_PLACE}
    for place, text in (places | {folder / "tampered.py": TAMPERED, folder / "forgetful.py": FORGETFUL}).items():
        place.write_text(text)
    sides = {"no zone": (*NO_ZONE, "tampered"), "one zone": (*WITH_ONE_ZONE, "forgetful")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        return run_sides(folder, sides, [WRONG_ORDER, FOR_NO_ZONE, *map(str, places)])


def in_place(outcomes):
    """The passed tests among those that check which classes are tested: they are outside of vLLM's folder."""
    return [test.removeprefix("::") for test, each in outcomes.items() if test[:2] == "::" and each.outcome == "passed"]


def test_what_passes_with_vllms_classes_passes_with_ours(outcomes):
    comparison = compare(outcomes["stock"], outcomes["no zone"])
    print(*describe(comparison), sep="\n")
    assert comparison.conforms
    assert len(comparison.passed) > 850


def test_it_passes_with_one_zone_that_owns_the_whole_pool_or_there_is_a_reason(outcomes):
    comparison = compare(outcomes["stock"], outcomes["one zone"], read_reasons(REASONS, installed_vllm()))
    print(*describe(comparison), sep="\n")
    assert comparison.conforms
    assert len(comparison.passed) > 850


def test_a_pool_that_breaks_one_rule_is_a_named_difference(outcomes, broken):
    """Blocks are freed in the wrong order: the head of a prefix would be evicted before its tail."""
    stock = {test: outcomes["stock"][test] for test in (WRONG_ORDER, FOR_NO_ZONE)}
    assert list(compare(stock, broken["no zone"]).stock_only) == [WRONG_ORDER]
    assert in_place(broken["no zone"]) == [
        "test_schedulers",
        "test_kv_cache_manager",
        "test_block_pool",
        "test_an_engine_that_runs_a_model",
    ]


def test_a_manager_that_forgets_for_whom_it_looks_is_a_named_difference_with_one_zone(outcomes, broken):
    """Prefixes are looked up without a zone, and so not in the zone's index."""
    stock = {FOR_NO_ZONE: outcomes["stock"][FOR_NO_ZONE]}
    assert list(compare(stock, broken["one zone"]).stock_only) == [FOR_NO_ZONE]
    assert in_place(broken["one zone"])[-3:] == ["test_a_pool", "test_a_manager", "test_a_scheduler"]
