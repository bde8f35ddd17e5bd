"""What does not go with zones is refused at start, and named."""

import pytest
from vllm.config import ModelConfig
from vllm.v1.kv_cache_interface import KVCacheConfig

from tenantzone_runtime.engine.versions import UnsupportedError, check_supported, check_version
from tests.engine.harness import caches, make_scheduler, vllm_config


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.32.0+cpu"])
def test_supported_versions(version):
    check_version(version)


@pytest.mark.parametrize("version", ["0.31.0", "0.33.0", "1.0.0"])
def test_other_versions_are_refused(version):
    with pytest.raises(UnsupportedError, match=rf"vLLM {version} is not supported.*install"):
        check_version(version)


@pytest.fixture
def config(tmp_path):
    return vllm_config(tmp_path)


def test_a_plain_model_is_supported(config):
    check_supported(config, caches(10))


def test_flags_are_refused_by_name(config):
    config.parallel_config.data_parallel_size = 2
    config.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(UnsupportedError, match=r"--data-parallel-size.*--pipeline-parallel-size") as refusal:
        check_supported(config, caches(10))
    assert isinstance(config.model_config, ModelConfig)
    assert config.model_config.model in str(refusal.value)


def test_hybrid_models_are_refused(config):
    one = caches(10)
    two = KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=one.kv_cache_groups * 2)
    with pytest.raises(UnsupportedError, match="more than one group of KV caches"):
        check_supported(config, two)


def test_vllms_own_classes_are_back_after_a_scheduler_was_made(config):
    from vllm.v1.core import kv_cache_coordinator
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched import scheduler

    make_scheduler(config, 10)
    assert kv_cache_coordinator.BlockPool is BlockPool
    assert scheduler.KVCacheManager is KVCacheManager
