"""Which vLLM versions zones support: others are refused at start; supported ones have what our classes extend."""

import inspect
import re
import subprocess
import sys

import pytest
import vllm
from vllm.config import ModelConfig

from hack.harness.kv_caches import caches
from hack.harness.scheduler import make_scheduler, vllm_config
from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.blocks.kv_cache_manager import ZoneKVCacheManager
from tenantzone_runtime.engine.core.scheduling import ZoneAwareScheduler
from tenantzone_runtime.engine.queues.request_queue import ZoneRequestQueue
from tenantzone_runtime.engine.versions import SUPPORTED_VERSIONS, UnsupportedError, check_supported, check_version


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0", "0.32.1", "0.32.0+cpu", "0.33.0", vllm.__version__])
def test_supported_versions(version):
    check_version(version)


@pytest.mark.parametrize("version", ["0.30.9", "0.34.0", "1.0.0"])
def test_other_versions_are_refused_and_the_supported_ones_named(version):
    advice = f"vLLM {version} is not supported, zones need vllm{SUPPORTED_VERSIONS}; install one of those"
    with pytest.raises(UnsupportedError, match=re.escape(advice)):
        check_version(version)


ENTRANCES = {
    "of vllm serve": "import tenantzone_runtime.engine.scheduler",
    "of our own serve": "from tenantzone_runtime.engine import launch; launch.main()",
}


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
def test_a_version_that_lacks_what_we_import_is_refused_before_that(entrance):
    internals = ["vllm.v1.core.block_pool", "vllm.v1.core.sched.async_scheduler", "vllm.entrypoints.cli.serve"]
    other = f"import sys, vllm; vllm.__version__ = '0.99.0'; sys.modules.update(dict.fromkeys({internals}))"
    refusal = subprocess.run([sys.executable, "-c", f"{other}; {entrance}"], capture_output=True, text=True)
    assert refusal.returncode == 1
    assert "vLLM 0.99.0 is not supported" in refusal.stderr.splitlines()[-1]


EXTENDED = (ZoneAwareScheduler, ZoneKVCacheManager, ZoneBlockPool, ZoneRequestQueue)


@pytest.mark.parametrize("ours", EXTENDED)
def test_vllm_has_each_method_that_is_handed_on_to_it(ours):
    """Includes methods that no test runs, such as the lookup for a KV connector."""
    handed_on = set(re.findall(r"super\(\)\.(\w+)\(", inspect.getsource(ours)))
    assert {name for name in handed_on if not hasattr(ours.__base__, name)} == set()


@pytest.mark.parametrize("ours", EXTENDED)
def test_what_replaces_a_method_of_vllms_takes_what_vllm_hands_it(ours):
    replaced = {
        name: (inspect.signature(method), inspect.signature(getattr(ours.__base__, name)))
        for name, method in vars(ours).items()
        if inspect.isfunction(method) and name != "__init__" and inspect.isfunction(getattr(ours.__base__, name, None))
    }
    assert replaced
    assert {name: both for name, both in replaced.items() if not takes_all(*both)} == {}


def takes_all(ours: inspect.Signature, stock: inspect.Signature) -> bool:
    """Whether ours names the first of vLLM's parameters as vLLM does, and takes the rest."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [name for name, each in ours.parameters.items() if each.kind not in variable]
    expected = list(stock.parameters)
    return named == (expected[: len(named)] if len(ours.parameters) == len(named) + len(variable) else expected)


@pytest.fixture
def config(tmp_path):
    return vllm_config(tmp_path)


def test_a_plain_model_is_supported(config):
    check_supported(config, caches(10))


def test_flags_are_refused_by_name(config):
    config.parallel_config.data_parallel_size = 2
    config.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(UnsupportedError, match=r"several ranks .*; pipeline parallelism ") as refusal:
        check_supported(config, caches(10))
    assert isinstance(config.model_config, ModelConfig)
    assert config.model_config.model in str(refusal.value)


def test_vllms_own_classes_are_back_after_a_scheduler_was_made(config):
    from vllm.v1.core import kv_cache_coordinator
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched import scheduler

    make_scheduler(config, 10)
    assert kv_cache_coordinator.BlockPool is BlockPool
    assert scheduler.KVCacheManager is KVCacheManager
