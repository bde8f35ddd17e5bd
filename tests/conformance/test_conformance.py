"""With no zone declared, our scheduler, KV cache manager and block pool pass whatever vLLM's own pass."""

from conformance.comparison import compare, describe
from conformance.sides import SUBSTITUTION, TESTS, run_sides

IN_PLACE = """
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
"""

TAMPERED = """
from tenantzone_runtime.engine.block_pool import ZoneBlockPool

def pytest_configure():
    free = ZoneBlockPool.free_blocks
    ZoneBlockPool.free_blocks = lambda pool, blocks: free(pool, list(blocks)[::-1])
"""


def test_what_passes_with_vllms_classes_passes_with_ours(tmp_path):
    comparison = compare(*run_sides(tmp_path))
    print(*describe(comparison), sep="\n")
    assert comparison.conforms
    assert len(comparison.passed) > 900


def test_a_pool_that_breaks_one_rule_is_a_named_difference(tmp_path, monkeypatch):
    """Blocks are freed in the wrong order: the head of a prefix would be evicted before its tail."""
    (tmp_path / "tampered.py").write_text(TAMPERED)
    (tmp_path / "test_in_place.py").write_text(IN_PLACE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    arguments = [f"{TESTS}/test_prefix_caching.py", str(tmp_path / "test_in_place.py"), "-k", "test_evict or in_place"]

    comparison = compare(*run_sides(tmp_path, arguments, [SUBSTITUTION, "tampered"]))

    assert list(comparison.stock_only) == [f"{TESTS}/test_prefix_caching.py::test_evict"]
    assert [test.partition("::")[2] for test in comparison.ours_only] == [
        "test_schedulers",
        "test_kv_cache_manager",
        "test_block_pool",
    ]
