"""Blocks of a LoRA adapter depend on its weights: by vLLM's own hashes, its engine core and the scheduler."""

import inspect
import re
import shutil
from types import SimpleNamespace

import pytest
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, to_event_extra_keys
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_runtime.engine.patches.adapter_weights import ADAPTERS, identify_adapters_by_weights
from tests.engine.measured import zone

BLOCK = 16
STOCK = kv_cache_utils._gen_lora_extra_hash_keys


@pytest.fixture(autouse=True)
def identified(monkeypatch):
    """An engine core that has just started; the hashes of other tests are restored afterwards."""
    monkeypatch.setattr(EngineCore, "add_lora", EngineCore.add_lora)
    monkeypatch.setattr(kv_cache_utils, "_gen_lora_extra_hash_keys", kv_cache_utils._gen_lora_extra_hash_keys)
    monkeypatch.setattr(ADAPTERS, "_known", {})
    init_none_hash(sha256)
    identify_adapters_by_weights()
    identify_adapters_by_weights()


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "adapter", b"first weights")


def write(folder, weights, config=b"{}"):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_bytes(config)
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


def adapter(folder, name="sql", number=1):
    return LoRARequest(lora_name=name, lora_int_id=number, lora_path=str(folder))


def load(adapter):
    """Loads an adapter as vLLM's engine core does for its API server; the workers do not matter here."""
    loaded = []
    core = SimpleNamespace(
        model_executor=SimpleNamespace(add_lora=lambda each: not loaded.append(each)),
        scheduler=SimpleNamespace(on_lora_added=ADAPTERS.read),  # called by a vLLM with hooks
    )
    assert EngineCore.add_lora(core, adapter) is True
    assert loaded == [adapter]


def hashes(adapter):
    params = SamplingParams(max_tokens=1)
    hasher = get_request_block_hasher(BLOCK, sha256)
    return Request("one", [*range(3 * BLOCK)], params, None, lora_request=adapter, block_hasher=hasher).block_hashes


def hashes_of_an_engine(adapter):
    """The hashes of one prompt's blocks in an engine that starts now and loads this adapter."""
    ADAPTERS._known.clear()
    load(adapter)
    return hashes(adapter)


@pytest.mark.shows("LoRA")
def test_other_weights_under_the_same_name_and_path_find_nothing_after_a_restart(folder):
    before = hashes_of_an_engine(adapter(folder))
    assert len(before) == 3
    assert hashes_of_an_engine(adapter(folder)) == before, "the same weights find what there is"
    write(folder, b"other weights")
    assert set(hashes_of_an_engine(adapter(folder))).isdisjoint(before)


def test_another_config_of_the_same_weights_finds_nothing(folder):
    before = hashes_of_an_engine(adapter(folder))
    write(folder, b"first weights", b'{"r": 8}')
    assert set(hashes_of_an_engine(adapter(folder))).isdisjoint(before)


def test_the_same_weights_find_at_another_path_what_there_is(folder, tmp_path):
    before = hashes_of_an_engine(adapter(folder))
    copy = shutil.copytree(folder, tmp_path / "another replica's")
    assert hashes_of_an_engine(adapter(copy)) == before


def test_what_lies_next_to_an_adapters_files_does_not_count(folder):
    before = hashes_of_an_engine(adapter(folder))
    (folder / "README.md").write_text("trained on a Monday")
    assert hashes_of_an_engine(adapter(folder)) == before


def test_content_does_not_pass_from_one_file_to_the_next(folder):
    before = hashes_of_an_engine(adapter(folder))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert set(hashes_of_an_engine(adapter(folder))).isdisjoint(before)


def test_requests_without_an_adapter_are_hashed_as_vllm_does(folder):
    plain = hashes(None)
    assert set(plain).isdisjoint(hashes_of_an_engine(adapter(folder)))
    kv_cache_utils._gen_lora_extra_hash_keys = STOCK
    assert hashes(None) == plain


def test_kv_events_still_show_an_adapters_name(folder):
    load(adapter(folder))
    request = SimpleNamespace(lora_request=adapter(folder))
    keys = kv_cache_utils._gen_lora_extra_hash_keys(request)
    assert to_event_extra_keys([tuple(keys)]) == [("sql",)]


def test_each_file_that_vllm_reads_of_an_adapter_counts(folder):
    source = inspect.getsource(LoRAModel.from_local_checkpoint) + inspect.getsource(PEFTHelper.from_local_dir)
    names = set(re.findall(r'"(\w+\.(?:safetensors|bin|pt|json))"', source))
    assert names == {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt"}
    for name in names:
        before = hashes_of_an_engine(adapter(folder))
        (folder / name).write_bytes(b"another content")
        assert set(hashes_of_an_engine(adapter(folder))).isdisjoint(before), name


@pytest.fixture
def driver(tmp_path):
    driver = Driver(make_scheduler(vllm_config(tmp_path), 60))
    driver.declare(zone("acme"))
    return driver


def replace_weights(folder):
    write(folder, b"other weights")


@pytest.mark.parametrize("change", [replace_weights, shutil.rmtree])
def test_an_adapter_whose_files_have_changed_is_refused_until_the_engine_starts_again(driver, folder, change):
    load(adapter(folder))
    change(folder)
    request = driver.send("acme", prompt(2), adapter=adapter(folder))
    driver.step()
    assert driver.finished[request.request_id] == "error"
    assert driver.scheduler.tenancy.refusals["changed_adapter"] == 1
    write(folder, b"other weights")
    load(adapter(folder))
    assert driver.finished.get(driver.send("acme", prompt(2), adapter=adapter(folder)).request_id) is None
    assert driver.scheduler.tenancy.refusals["changed_adapter"] == 1


def test_an_adapter_whose_files_are_as_they_were_is_served(driver, folder):
    load(adapter(folder))
    (folder / "README.md").write_text("retrained on a Tuesday")
    request = driver.send("acme", prompt(2), max_tokens=1, adapter=adapter(folder))
    driver.step()
    driver.step()
    assert driver.finished[request.request_id] == "length"
