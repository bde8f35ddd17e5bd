"""Tiers below the blocks, with vLLM's real scheduler and connector: what is stored, found again, by whom, and who waits."""

from random import Random

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.tiers import TierShare
from tests.engine.tier_worker import TierWorker, with_tiers
from tests.zones.core import declare


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
