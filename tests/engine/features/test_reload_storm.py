"""A thousand random configs in a row, one before each step of vLLM's real scheduler, with requests in flight."""

import random
from collections import deque
from dataclasses import dataclass

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_contract.zone_config.zone_terms import Idle, Lending
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tests.engine.features.paged_model import PagedModel

CAPACITY = 100
CONFIGS = 1000
TENANTS = ("acme", "burst", "calm", "dusk")
MAX_BLOCKS = 24


@dataclass(frozen=True)
class Question:
    tenant: str
    prompt: list[int]
    tokens: int


def random_zone(chance: random.Random, tenant: str, reserved: int) -> ZoneConfig:
    limit = chance.choice([None, chance.randint(max(reserved, 1), CAPACITY), "100%"])
    return ZoneConfig(
        name=tenant,
        tenant=tenant,
        generation=1,
        reserved=reserved if limit != "100%" else f"{reserved}%",
        limit=limit,
        priority=chance.randint(-2, 2),
        weight=chance.randint(1, 4),
        lending=Lending(
            lendable=chance.choice(["0%", "30%", "100%"]),
            borrowers=chance.choice(["SameOrHigherPriority", "AnyPriority"]),
            max_loan_seconds=chance.choice([None, 0.0, 0.1]),
            grace_seconds=chance.choice([0.0, 0.1]),
        ),
        idle=Idle(after_seconds=chance.choice([0.0, 0.02, 60.0]), evict_after_seconds=chance.choice([None, 0.05])),
        eviction_policy=chance.choice(list(EVICTION_POLICIES)),
        scrub=chance.choice(["OnTransfer", "Never"]),
    )


def random_config(chance: random.Random, generation: int) -> RuntimeConfig:
    """Random tenants, with reservations that add up to at most the engine's blocks."""
    left, zones = CAPACITY, []
    for tenant in chance.sample(TENANTS, chance.randint(1, len(TENANTS))):
        zones.append(random_zone(chance, tenant, chance.choice([0, chance.randint(0, left)])))
        left -= zones[-1].reserved if isinstance(zones[-1].reserved, int) else int(zones[-1].reserved[:-1])
    marks = chance.choice([Watermarks(), Watermarks(low=0.1, high=0.3)])
    unknown = UnknownTenants(mode=chance.choice(["Reject", "AutoRegister"]))
    pool = PoolConfig(namespace="test", name="pool", watermarks=marks, unknown_tenants=unknown)
    return make_config(generation, pool, tuple(zones))


def blocks_of(reserved: int | str) -> int:
    return reserved if isinstance(reserved, int) else int(reserved[:-1])


def kept_from(borrower: ZoneConfig, lender: ZoneConfig) -> int:
    """Blocks that a zone never lends to another one."""
    reserved = blocks_of(lender.reserved)
    lends = borrower.priority >= lender.priority or lender.lending.borrowers == "AnyPriority"
    # Loans that may end within a step are not granted.
    lends = lends and (lender.lending.max_loan_seconds, lender.lending.grace_seconds) != (0.0, 0.0)
    return reserved - (reserved * int(str(lender.lending.lendable)[:-1]) // 100 if lends else 0)


def random_question(chance: random.Random, config: RuntimeConfig) -> Question | None:
    """A tenant's request that fits its limit and what others leave, so that it is never refused, reload or not."""
    zone = chance.choice(config.zones)
    max_blocks = min(MAX_BLOCKS, zone.limit) if isinstance(zone.limit, int) else MAX_BLOCKS
    kept = sum(kept_from(zone, other) for other in config.zones if other is not zone)
    max_blocks = min(max_blocks, max(blocks_of(zone.reserved), CAPACITY - kept))
    if not max_blocks:
        return None
    blocks = chance.randint(1, max_blocks)
    generated = chance.randint(1, blocks * BLOCK_TOKENS - 1)
    start = prompt(blocks, seed=chance.randint(1, 6), extra=0)[: blocks * BLOCK_TOKENS - generated]
    return Question(zone.tenant, start, min(generated, 60))


def answers(scheduler, steps: list[tuple[RuntimeConfig, Question | None]], *, ahead: int) -> list[list[int]]:
    """Applies, asks and steps in turn; schedules ``ahead`` steps before the oldest one's tokens are known."""
    driver, model, in_flight, requests = Driver(scheduler), PagedModel(CAPACITY + 1), deque(), []

    def step() -> None:
        scheduled = scheduler.schedule()
        in_flight.append((scheduled, model.execute(scheduled)))
        while len(in_flight) > ahead:
            scheduler.update_from_output(*in_flight.popleft())
        scheduler.let_time_pass()
        driver.check()

    for config, question in steps:
        scheduler.apply_config(config)
        if question is not None:
            requests.append(driver.send(question.tenant, list(question.prompt), max_tokens=question.tokens))
        step()
    for _ in range(20 * CONFIGS):
        if not scheduler.has_unfinished_requests() and not any(output.num_scheduled_tokens for output, _ in in_flight):
            break
        step()
    assert not scheduler.has_unfinished_requests(), "no request is stuck"
    driver.declare()
    scheduler.let_time_pass()
    driver.check()
    assert scheduler.block_pool.free_block_queue.num_free_blocks == CAPACITY, "on an idle engine all blocks are free"
    return [list(request.output_token_ids) for request in requests]


@pytest.mark.parametrize("ahead", [0, 1], ids=["step by step", "asynchronous"])
@pytest.mark.shows("hot reload under load", "async scheduling")
def test_a_thousand_reloads_lose_no_request_and_no_block_and_change_no_token(tmp_path, ahead):
    chance = random.Random(ahead)
    configs = [random_config(chance, generation + 1) for generation in range(CONFIGS)]
    steps = [(config, random_question(chance, config) if chance.random() < 0.25 else None) for config in configs]
    settings = vllm_config(tmp_path, max_batched_tokens=256)
    calm = make_config(
        1,
        PoolConfig(namespace="test", name="pool"),
        tuple(ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in TENANTS),
    )
    undisturbed = answers(make_scheduler(settings, CAPACITY), [(calm, question) for _, question in steps], ahead=ahead)
    scheduler = make_scheduler(settings, CAPACITY)
    assert answers(scheduler, steps, ahead=ahead) == undisturbed
    assert all(undisturbed)
    assert len(undisturbed) > 200
    assert sum(len(tokens) for tokens in undisturbed) == sum(question.tokens for _, question in steps if question)
