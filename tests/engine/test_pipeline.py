"""Pipelines: there is one more step in flight than there are stages."""

from copy import copy

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config
from tests.engine.measured import zone

STAGES = 4


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A pool of 12 blocks; acme and burst have reserved half each."""
    config = vllm_config(tmp_path)
    # Not before: vLLM would miss the GPU's compiler, which a scheduler does not need.
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    config.parallel_config = copy(config.parallel_config)
    config.parallel_config.pipeline_parallel_size = STAGES
    config.scheduler_config.async_scheduling = True
    driver = Driver(make_scheduler(config, 12))
    driver.declare(zone("acme", reserved=6), zone("burst", reserved=6))
    return driver


@pytest.mark.shows("pipeline parallelism (`-pp`)")
def test_a_request_whose_token_is_in_flight_is_skipped_and_asks_for_no_block(driver):
    request = driver.send("acme", prompt(1)[:BLOCK_TOKENS], max_tokens=20)
    others = [driver.send("burst", prompt(2), max_tokens=20) for _ in range(2)]
    engine = driver.scheduler._arbiter._engine
    asked, scheduled = [], []
    in_flight = []
    for _ in range(2 * STAGES):
        # The needs are queried only where blocks are short.
        asked.append(any(request is each for each, _ in _needs(engine)))
        in_flight.append(driver.schedule())
        scheduled.append(request.request_id in in_flight[-1][0].num_scheduled_tokens)
        if len(in_flight) > STAGES:
            driver.update(*in_flight.pop(0))
    assert scheduled == [True, False, False, False] * 2
    assert [step for step, is_asking in enumerate(asked) if is_asking] == [STAGES], "in no step in which it is skipped"
    assert all(each.num_preemptions == 0 for each in others)


def _needs(engine):
    """The needs, as with few free blocks."""
    engine._blocks_each = 100
    return engine.needs()


@pytest.mark.shows("pipeline parallelism (`-pp`)")
def test_the_depth_of_a_pipeline_is_vllms_own(driver):
    assert driver.scheduler._arbiter._engine.depth == STAGES + 1
