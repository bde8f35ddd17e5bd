"""Tiers below the blocks, with vLLM's real scheduler and connector: what is stored, found again, by whom, and who waits."""

from copy import copy
from random import Random

import pytest
from vllm.config import KVTransferConfig

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.tiers import TierShare
from tenantzone_runtime.offloading_flags import CONNECTOR, CONNECTOR_MODULE
from tests.engine.tier_worker import TierWorker
from tests.zones.core import declare

CHUNK_BYTES = 8192
"""Of a block of the harness's model."""


def with_tiers(config, chunks, **more):
    """The same config, of an engine with a CPU memory tier of so many chunks."""
    config = copy(config)
    extra = {
        "spec_name": "ZoneOffloadingSpec",
        "spec_module_path": "tenantzone_runtime.engine.offloading_spec",
        "cpu_bytes_to_use": chunks * CHUNK_BYTES,
    }
    config.kv_transfer_config = KVTransferConfig(
        kv_connector=CONNECTOR,
        kv_connector_module_path=CONNECTOR_MODULE,
        kv_role="kv_both",
        kv_connector_extra_config=extra | more,
    )
    return config


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


class TieredEngine(Driver):
    """An engine of so many blocks and chunks."""

    def __init__(self, config, capacity, chunks, *, slowest=0, seed=0, **flags):
        config = with_tiers(with_flags(config, **flags), chunks)
        super().__init__(make_scheduler(config, capacity))
        self.worker = TierWorker(self, Random(seed), slowest)
        (self.tier,) = [served.tier for served in self.scheduler.tiers.served]

    def check(self):
        super().check()
        if hasattr(self, "tier"):
            self.tier.check()

    def rest(self):
        """Step until no copy is under way."""
        for _ in range(100):
            if not self.scheduler.has_requests():
                return
            self.step()
        raise AssertionError("copies are under way for ever")

    def ask(self, tenant, tokens, **arguments):
        request = super().ask(tenant, tokens, **arguments)
        self.rest()
        return request


@pytest.fixture
def engine(config):
    engines = []

    def make(*args, **kwargs):
        engines.append(TieredEngine(config, *args, **kwargs))
        return engines[-1]

    yield make
    for each in engines:
        each.scheduler.shutdown()


def test_what_left_the_blocks_is_found_again_in_memory(engine):
    engine = engine(20, 60)
    engine.declare(declare("acme"))
    tokens = prompt(8)
    engine.ask("acme", tokens)
    for _ in range(3):
        engine.ask("acme", prompt(15))
    again = engine.ask("acme", tokens)
    assert engine.cached_tokens(again) == 8 * BLOCK_TOKENS
    assert engine.worker.loaded == 8


def test_nothing_is_found_of_another_tenants(engine):
    engine = engine(20, 60)
    engine.declare(declare("acme"), declare("burst"))
    tokens = prompt(8)
    engine.ask("acme", tokens)
    other = engine.ask("burst", tokens)
    assert engine.cached_tokens(other) == 0
    assert engine.worker.loaded == 0
