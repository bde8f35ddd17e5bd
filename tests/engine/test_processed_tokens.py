"""Each token that vLLM's real scheduler has processed is in exactly one of its zone's counters."""

from typing import get_args

import pytest
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

from hack.harness.processed_tokens import TokenTally
from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, with_drafts, with_flags
from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.zones.model.processed_tokens import COUNTERS, ProcessedAs
from tests.engine.measured import abort, zone
from tests.engine.tiered_driver import TieredEngine


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=256)


@pytest.fixture
def driver(config):
    driver = Driver(make_scheduler(with_flags(config, async_scheduling=False), 60))
    driver.declare(zone("acme"))
    return driver


def counted(driver, tenant="acme"):
    """The zone's counters that are not 0."""
    counters = driver.zone(tenant).counters
    counts = {kind: getattr(counters, COUNTERS[kind]) for kind in get_args(ProcessedAs)}
    return {kind: tokens for kind, tokens in counts.items() if tokens}


def preempt_all(driver):
    """Preempts all, as a reset of the prefix cache does, which discards the output of steps in flight."""
    driver.scheduler.reset_prefix_cache(reset_running_requests=True)


def test_what_is_cached_is_hit_and_the_rest_computed_first(driver):
    driver.ask("acme", prompt(4, seed=1), max_tokens=3)
    assert counted(driver) == {"computed_first": 4 * BLOCK_TOKENS + 1 + 2}
    driver.ask("acme", prompt(4, seed=1), max_tokens=3)
    assert counted(driver) == {"computed_first": 4 * BLOCK_TOKENS + 1 + 2 + 1 + 2, "hit": 4 * BLOCK_TOKENS}


def test_a_prompt_in_chunks_is_computed_once(driver):
    driver.send("acme", prompt(40, seed=1))
    driver.step()
    driver.scheduler._count_generated(0.0)
    assert counted(driver) == {"computed_first": 256}
    driver.run()
    assert counted(driver) == {"computed_first": 40 * BLOCK_TOKENS + 1}


def test_what_a_preemption_has_lost_is_recomputed(driver):
    request = driver.send("acme", prompt(4, seed=1), max_tokens=8)
    for _ in range(5):
        driver.step()
    preempt_all(driver)
    before = 4 * BLOCK_TOKENS + 1 + 4
    assert counted(driver) == {"computed_first": before}
    driver.run()
    assert request.num_preemptions == 1
    assert counted(driver) == {"computed_first": before + 3, "recomputed": before}


def test_what_stays_cached_through_a_preemption_is_hit(driver):
    request = driver.send("acme", prompt(4, seed=1), max_tokens=8)
    for _ in range(5):
        driver.step()
    driver.scheduler.running.remove(request)
    driver.scheduler._preempt_request(request, 0.0)
    driver.run()
    before = 4 * BLOCK_TOKENS + 1 + 4
    assert counted(driver) == {"computed_first": before + 3, "hit": 4 * BLOCK_TOKENS, "recomputed": 5}


def test_who_goes_away_in_the_midst_of_a_step_is_counted_with_it(driver):
    request = driver.send("acme", prompt(4, seed=1), max_tokens=8)
    step = driver.schedule()
    abort(driver, request)
    driver.update(*step)
    assert counted(driver) == {"computed_first": 4 * BLOCK_TOKENS + 1}


def test_what_came_before_any_zone_is_counted_from_then_on(config):
    driver = Driver(make_scheduler(with_flags(config, async_scheduling=False), 60))
    request = driver.send(None, prompt(4, seed=1), max_tokens=8)
    for _ in range(3):
        driver.step()
    driver.declare(zone("acme"))
    early = zone_of(request)
    driver.run()
    assert (early.counters.computed_first_tokens, early.counters.recomputed_tokens) == (5, 0)


@pytest.mark.parametrize("right", [0, 1, 3])
@pytest.mark.shows("speculative decoding (`--speculative-config`)")
def test_drafts_that_are_wrong_are_rejected_and_not_computed_again(config, right):
    driver = Driver(make_scheduler(with_flags(with_drafts(config, "ngram", 3), async_scheduling=False), 60))
    driver.declare(zone("acme"))
    # In the last step, drafts beyond the answer's end may be right.
    request = driver.send("acme", prompt(2, seed=1), max_tokens=12)
    scheduled = rejected = 0
    while driver.scheduler.has_unfinished_requests():
        output, result = driver.schedule()
        scheduled += output.total_num_scheduled_tokens
        drafted = len(output.scheduled_spec_decode_tokens.get(request.request_id, ()))
        for sampled in result.sampled_token_ids:
            del sampled[1 + min(drafted, right) :]
        rejected += drafted - min(drafted, right)
        driver.update(output, result)
        driver.draft(output)
    counts = counted(driver)
    assert counts.get("draft_rejected", 0) == rejected
    assert rejected or right == 3
    assert counts["computed_first"] == scheduled - rejected
    assert "recomputed" not in counts


@pytest.mark.parametrize("drafts", [None, ("eagle", 3)], ids=["without drafts", "with drafts"])
@pytest.mark.parametrize("steps_in_flight", [1, 2, 3])
@pytest.mark.shows("speculative decoding (`--speculative-config`)")
def test_steps_in_flight_are_counted_through_preemptions_and_departures(config, drafts, steps_in_flight):
    if drafts is not None:
        config = with_drafts(config, *drafts)
    driver = Driver(make_scheduler(with_flags(config, async_scheduling=True), 60))
    driver.declare(zone("acme"))
    driver.drafts = lambda most: most // 2
    tally = TokenTally(driver.scheduler, zone_of)
    first, second = (driver.send("acme", prompt(20), max_tokens=12) for _ in range(2))
    in_flight, steps = [], 0
    while driver.scheduler.has_unfinished_requests() or in_flight:
        steps += 1
        assert steps < 200
        if driver.scheduler.has_unfinished_requests():
            in_flight.append(driver.schedule())
            tally.scheduled(in_flight[-1][0])
        if steps in (5, 9):
            preempt_all(driver)
        if steps == 7:
            driver.scheduler.running.remove(first)
            driver.scheduler._preempt_request(first, 0.0)
        if steps == 20:
            abort(driver, second)
        if len(in_flight) >= steps_in_flight or not driver.scheduler.has_unfinished_requests():
            tally.ending(*in_flight[0])
            driver.update(*in_flight.pop(0))
    expected = tally.counts[driver.zone("acme")]
    counts = counted(driver)
    assert expected["recomputed"] > 0
    assert (expected["draft_rejected"] > 0) == (drafts is not None)
    for kind in ("computed_first", "recomputed", "draft_rejected"):
        assert counts.get(kind, 0) == expected[kind], kind


class TestLoads:
    """Tokens loaded from tiers."""

    @pytest.fixture
    def engine(self, config):
        engine = TieredEngine(config, 40, 60)
        engine.declare(zone("acme"))
        return engine

    def test_what_a_tier_had_is_loaded_when_it_has_landed(self, engine):
        tokens = engine.stored("acme", 8)
        before = counted(engine)
        engine.loading("acme", tokens)
        assert counted(engine) == before, "it has not landed yet"
        engine.land()
        engine.run()
        assert counted(engine) == {"computed_first": before["computed_first"] + 1, "loaded": 8 * BLOCK_TOKENS}

    def test_who_goes_away_while_it_loads_has_loaded_nothing(self, engine):
        request = engine.loading("acme", engine.stored("acme", 8))
        before = counted(engine)
        abort(engine, request)
        engine.land()
        engine.rest()
        assert counted(engine) == before

    @pytest.mark.parametrize(
        ("bad", "there"), [(0, 8), (5, 5)], ids=["nothing is there and it is loaded again", "the end is not there"]
    )
    def test_a_load_that_failed_counts_for_what_has_landed(self, engine, bad, there):
        tokens = engine.stored("acme", 8)
        before, charged = counted(engine)["computed_first"], engine.zone("acme").counters.computed_tokens
        engine.scheduler.recompute_kv_load_failures = True
        request = engine.loading("acme", tokens)
        block = engine.scheduler.kv_cache_manager.get_block_ids(request.request_id)[0][bad]
        copy = engine.copy

        def fails(output):
            engine.copy = copy
            outcome = copy(output) or KVConnectorOutput()
            outcome.invalid_block_ids = {block}
            return outcome

        engine.copy = fails
        engine.step()
        assert request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
        engine.worker.slowest = engine.worker.fastest = 0
        engine.land()
        engine.run()
        there, counts = there * BLOCK_TOKENS, counted(engine)
        assert counts["computed_first"] - before == len(tokens) - there
        assert counts.get("loaded", 0) == there
        assert "recomputed" not in counts
        # And the token that it generates.
        assert engine.zone("acme").counters.computed_tokens - charged == len(tokens) - there + 1
