"""Random lives of vLLM's real scheduler with zones: invariants after each step, and no request starves.

200 lives, the same ones each time; HYPOTHESIS_PROFILE=deep runs 10,000 new ones each time. A failing life is shrunk and
printed, with what reproduces it.
"""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from hack.harness.scheduler import vllm_config
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tests.engine.clock import Clock
from tests.engine.histories.engine import Engine
from tests.engine.histories.events import Declare, Flags, Image, Life, Send, TierFlags
from tests.engine.histories.generator import (
    flags_with_adapters,
    flags_with_images,
    flags_with_whole_hits,
    lives,
    lives_with_slow_images,
)
from tests.engine.histories.liveness import drain

LIVES = {"deep": 10_000, "mutation": 30}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 200)
lived = 0


@pytest.fixture(scope="module")
def run_life(tmp_path_factory):
    """Runs one life. Not the config itself: Hypothesis prints the arguments of a test, and can't print that."""
    config = vllm_config(tmp_path_factory.mktemp("model"))
    return lambda life: run(config, life)


@pytest.fixture(autouse=True)
def _quiet_logs():
    """Silences logs: each refused request causes a warning, and each pause a line."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def sending(tenant: str, blocks: int, *, prefix: int | None = None, count: int = 1) -> Send:
    """Requests with defaults for everything else."""
    return Send(
        tenant=tenant,
        blocks=blocks,
        extra=1,
        max_tokens=1,
        prefix=prefix,
        count=count,
        priority=0,
        prompt_logprobs=False,
        user="",
        images=(),
        grammar=None,
        adapter=None,
    )


def asking(tenant: str, blocks: int, image: Image) -> Send:
    """A request about an image."""
    return replace(sending(tenant, blocks), images=(image,))


AN_IMAGE_HAS_ALL_OF_THE_ENCODER = Life(
    Flags(
        capacity=40,
        seats=64,
        batched_tokens=12,
        chunked=True,
        long_prefill=0,
        watermark=0.0,
        whole_prompts=True,
        window=None,
        kinds=(),
        policy="fcfs",
        prefix_caching=True,
        steps_in_flight=1,
        step_seconds=0.02,
        token_seconds=0.0,
        drafting=None,
        encoder=(64, 64),
        whole_images=False,
        adapters=None,
        steps_in_pauses=False,
        tiers=None,
    ),
    (
        Declare(
            (
                ZoneConfig(name="acme", tenant="acme", generation=1),
                ZoneConfig(name="burst", tenant="burst", generation=1, weight=20),
            ),
            PoolConfig(namespace="test", name="pool"),
        ),
        asking("burst", 19, Image("cat", is_new=False, gap=200)),
        asking("acme", 5, Image("owl", is_new=False, gap=3)),
    ),
)
"""It was stuck: requests that waited for the encoder had each step's tokens, and those with its room had none."""

REQUESTS_FROM_BEFORE_ZONES_COUNT_ON_A_ZONES_CHUNKS = Life(
    Flags(
        capacity=40,
        seats=64,
        batched_tokens=1024,
        chunked=True,
        long_prefill=0,
        watermark=0.0,
        whole_prompts=True,
        window=64,
        kinds=("window", "full", "window"),
        policy="fcfs",
        prefix_caching=True,
        steps_in_flight=5,
        step_seconds=0.02,
        token_seconds=0.0,
        drafting=None,
        encoder=None,
        whole_images=False,
        adapters=None,
        steps_in_pauses=False,
        tiers=TierFlags(chunks=30, slowest=0, files=None, failing=False),
    ),
    (
        sending("burst", blocks=12, prefix=1, count=4),
        Declare((ZoneConfig(name="burst", tenant="burst", generation=1),), PoolConfig(namespace="test", name="pool")),
        sending("burst", blocks=12, prefix=1),
        sending("burst", blocks=4),
    ),
)
"""These chunks stayed when their hit went, and when those requests ended."""


COMMON = settings(
    deadline=None,
    print_blob=True,
    derandomize=LIVES < 10_000,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def example_with_groups_in_tiers(life: Life) -> Callable[[Callable], Callable]:
    """Makes a test try a life too, unless the installed vLLM is refused for it."""
    return example(life=life) if keep_groups_in_tiers() else lambda test: test


@given(life=lives())
@example(life=AN_IMAGE_HAS_ALL_OF_THE_ENCODER)
@example_with_groups_in_tiers(REQUESTS_FROM_BEFORE_ZONES_COUNT_ON_A_ZONES_CHUNKS)
@settings(COMMON, max_examples=LIVES)
@pytest.mark.shows(
    "random combinations of features",
    "speculative decoding (`--speculative-config`)",
    "pipeline parallelism (`-pp`)",
    "`--no-scheduler-reserve-full-isl`",
    "structured output whose grammar comes late, or fails",
    "LoRA",
)
def test_every_life_keeps_its_promises_and_ends(run_life, life):
    lived_one()
    run_life(life)


@given(life=lives(flags_with_whole_hits(), have_returns=True))
@settings(COMMON, max_examples=max(LIVES // 5, 30))
@pytest.mark.skipif(not keep_groups_in_tiers(), reason="refused with this vLLM")
@pytest.mark.shows("tiers of several groups")
def test_every_life_with_a_disk_for_several_groups_does(run_life, life):
    lived_one()
    run_life(life)


@given(life=lives(flags_with_adapters(), have_crowds=True))
@settings(COMMON, max_examples=max(LIVES // 5, 30))
@pytest.mark.shows("LoRA")
def test_every_life_with_more_adapters_than_slots_does(run_life, life):
    lived_one()
    run_life(life)


@given(life=lives(flags_with_images(), have_galleries=True))
@settings(COMMON, max_examples=max(LIVES // 5, 30))
def test_every_life_with_more_images_than_room_in_the_encoder_does(run_life, life):
    lived_one()
    run_life(life)


@given(life=lives_with_slow_images())
@settings(COMMON, max_examples=40 if LIVES < 10_000 else LIVES // 5)
def test_every_life_with_images_that_are_computed_slowly_does(run_life, life):
    lived_one()
    run_life(life)


def run(config, life: Life) -> None:
    """Runs one life from start to end."""
    clock = Clock()
    # The runner with several stages and steps that are scheduled ahead.
    runner = {"VLLM_USE_V2_MODEL_RUNNER": str(int(life.flags.steps_in_flight > 2))}
    with clock.in_force(), patch.dict(os.environ, runner):
        engine = Engine(config, life.flags, clock)
        try:
            for event in life.events:
                engine.live(event)
            drain(engine)
        finally:
            engine.end()


def lived_one() -> None:
    """Prints progress: a deep run takes minutes (`pytest -s`)."""
    global lived
    lived += 1
    if LIVES > 1000 and lived % 500 == 0:
        print(f"{lived} lives of engines", file=sys.stderr)
