"""Requests that vLLM finds no blocks for although the prediction said so: no other request waits for that."""

import os
from unittest.mock import patch

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.zone_terms import Lending
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tests.engine.clock import Clock
from tests.engine.histories.engine import Engine
from tests.engine.histories.events import Declare, Flags, TierFlags
from tests.engine.measured import zone
from tests.engine.test_refused import refusal

KEPT = Lending(lendable="0%", borrowers="AnyPriority")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


def test_a_hit_in_the_midst_of_a_block_is_counted_with_its_copy(config):
    driver = Driver(make_scheduler(config, 100, kinds=("wide", "mamba align wide")))
    driver.declare(zone("acme", limit=5), zone("burst", reserved=50), zone("calm"))
    tokens = prompt(12)
    for other in ("burst", "calm"):
        driver.ask(other, tokens[:60], max_tokens=30)
    driver.ask("acme", tokens[:17], max_tokens=1)
    request = driver.send("acme", tokens[:43], max_tokens=1)
    others = [driver.send(tenant, prompt(1), max_tokens=3) for tenant in ("burst", "calm")]
    for _ in range(10):
        driver.step()
    assert [driver.finished.get(other.request_id) for other in others] == ["length"] * 2
    assert "limit" in str(refusal(driver, request))


def test_a_zone_that_is_denied_over_and_over_stands_in_no_others_way(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", limit=10), zone("burst"))
    # Makes it acme's turn.
    driver.ask("burst", prompt(20), max_tokens=60)
    running = driver.send("acme", prompt(7), max_tokens=30)
    driver.step()
    engine = driver.scheduler._engine
    # As if the prediction were that it needs nothing.
    for name in ("blocks_at_most", "blocks_to_admit"):
        setattr(engine, name, lambda _: 0)
    denied = driver.send("acme", prompt(7), max_tokens=1)
    others = [driver.send("burst", prompt(2), max_tokens=2) for _ in range(3)]
    for _ in range(20):
        driver.step()
    assert running.request_id not in driver.finished
    assert not denied.num_computed_tokens
    assert [driver.finished.get(other.request_id) for other in others] == ["length"] * 3
    for _ in range(20):
        driver.step()
    assert driver.finished[denied.request_id] == "length"


@pytest.mark.skipif(not keep_groups_in_tiers(), reason="tiers with several groups are refused with this vLLM")
def test_what_has_landed_has_the_block_of_its_checkpoint(config):
    flags = Flags(
        capacity=33, seats=16, batched_tokens=1024, chunked=True, long_prefill=0, watermark=0.0, whole_prompts=True,
        window=64, kinds=("full", "mamba align checkpoints"), policy="fcfs", prefix_caching=True, steps_in_flight=1,
        step_seconds=0.02, token_seconds=0.0, drafting=None, encoder=None, whole_images=False, adapters=None,
        steps_in_pauses=False, tiers=TierFlags(chunks=300, slowest=6, files=None, failing=False),
    )  # fmt: skip
    clock = Clock()
    with clock.in_force(), patch.dict(os.environ, {"VLLM_USE_V2_MODEL_RUNNER": "0"}):
        engine = Engine(config, flags, clock)
        # It knows no checkpoints, and loads take six steps.
        engine._worker.checks, engine._worker.fastest = False, 6
        driver = engine.driver
        zones = zone("acme"), zone("burst"), zone("calm", reserved=10, lending=KEPT)
        engine.live(Declare(zones, PoolConfig(namespace="test", name="pool")))
        for request in (("acme", prompt(6, seed=1)), ("calm", prompt(1))):
            driver.send(*request)
            for _ in range(20):
                engine.turn()
        for each in list(engine.scheduler.block_pool.ledger.zones.values()):
            engine.scheduler.block_pool.evict(each, "reset")
        for number in range(4):
            driver.send("burst", prompt(0, extra=10 + number), max_tokens=150)
        engine.turn()
        loading = driver.send("acme", prompt(10, seed=1), max_tokens=2)
        for _ in range(10):
            engine.turn()
        calm = driver.send("calm", prompt(2), max_tokens=2)
        for _ in range(40):
            engine.turn()
        engine.end()
    assert [driver.finished.get(each.request_id) for each in (loading, calm)] == ["length"] * 2
