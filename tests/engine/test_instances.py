"""The instance of an engine: any change in the meaning of its bytes gives its chunks another name."""

from copy import copy
from types import SimpleNamespace

import pytest
import torch
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)

from hack.harness import kv_caches
from hack.harness.kv_caches import caches
from hack.harness.scheduler import vllm_config
from tenantzone_runtime.engine.tiers.instances import instance_of, weights_revision


def offloading(**changes):
    parts = {
        "groups": (OffloadingGroupConfig(16, ("layer",), 0),),
        "worker_kv_bytes_per_block": 8192,
        "enable_kv_cache_events": False,
        "extra_config": {},
        "engine_id": "engine",
        "model": OffloadingModelConfig("m", "bfloat16"),
        "cache": OffloadingCacheConfig(16, 1),
        "parallel": OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
        "kv_cache_layout": "NHD",
    }
    return OffloadingConfig(**(parts | changes))


@pytest.fixture
def config(tmp_path):
    config = vllm_config(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return config


def digest(config, tenant="acme", salt_key_id="id", kinds=("full",), **changes):
    return instance_of(config, offloading(**changes), caches(10, 64, kinds, config))(tenant, salt_key_id).digest


def test_an_engine_that_starts_again_is_the_same_instance(config):
    assert digest(config) == digest(config)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "burst"},
        {"salt_key_id": "another"},
        {"model": OffloadingModelConfig("m", "fp8")},
        {"cache": OffloadingCacheConfig(16, 4)},
        {"groups": (OffloadingGroupConfig(32, ("layer",), 0),)},
        {"groups": (OffloadingGroupConfig(16, ("layer",), 0), OffloadingGroupConfig(16, ("other",), 1))},
        {"kv_cache_layout": "HND"},
        {"worker_kv_bytes_per_block": 4096},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_part_makes_another(config, change):
    assert digest(config, **change) != digest(config)


def test_other_weights_of_the_same_size_make_another(config, tmp_path):
    before = digest(config)
    (tmp_path / "model.safetensors").write_bytes(b"WEIGHTS")
    assert digest(config) != before


def test_another_hash_and_more_ranks_make_another(config):
    before = digest(config)
    for change in ("hash", "ranks"):
        other = copy(config)
        if change == "hash":
            other.cache_config = copy(config.cache_config)
            other.cache_config.prefix_caching_hash_algo = "sha256_cbor"
        else:
            other.parallel_config = copy(config.parallel_config)
            other.parallel_config.tensor_parallel_size = 2
        assert digest(other) != before, change


def test_states_of_another_form_make_another(config, monkeypatch):
    """They are padded to the size of other blocks, so no other part of the name shows the difference."""
    groups = (OffloadingGroupConfig(16, ("layer",), 0), OffloadingGroupConfig(16, ("other",), 1))
    kinds = ("full", "mamba align")
    before = digest(config, kinds=kinds, groups=groups)
    make = kv_caches.MambaSpec
    for change in ({"dtypes": (torch.bfloat16,)}, {"shapes": ((4, 64),)}):
        with monkeypatch.context() as patch:
            patch.setattr(kv_caches, "MambaSpec", lambda change=change, **parts: make(**parts | change))
            assert digest(config, kinds=kinds, groups=groups) != before, change


def test_a_seed_of_the_hashes_makes_another(config, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    before = digest(config)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert digest(config) != before


def test_of_a_hubs_cache_the_commit_is_the_revision(tmp_path):
    snapshot = tmp_path / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    assert weights_revision(SimpleNamespace(model=str(snapshot))) == "commit " + "a" * 40


def test_a_name_that_was_resolved_to_a_commit_shows_it():
    model = SimpleNamespace(model="org/model", revision="main", hf_config=SimpleNamespace(_commit_hash="b" * 40))
    assert weights_revision(model) == "commit " + "b" * 40
