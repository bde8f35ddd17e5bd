"""Requests for which offloading has nothing to do are left out of its steps, without any visible effect."""

from random import Random

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, prompt, vllm_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.engine.tiers.quiet_requests import QuietRequests
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tests.engine.tiered_driver import TieredEngine
from tests.zones.core import declare


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


class Looking(QuietRequests):
    """Counts the requests that vLLM looks at."""

    def __init__(self, chunk_tokens):
        super().__init__(chunk_tokens)
        self.looked_at = 0

    def leave_out(self, output, *others):
        rest = super().leave_out(output, *others)
        self.looked_at += len(rest.num_scheduled_tokens)
        return rest


class Checked(Looking):
    """Checks the slow way whether vLLM would have had anything to do for the requests left out."""

    connector = None
    left_out = 0

    def leave_out(self, output, statuses, *others):
        rest = super().leave_out(output, statuses, *others)
        cached = output.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            assert blocks is None or name in rest.scheduled_cached_reqs.req_ids
        for name in output.num_scheduled_tokens.keys() - rest.num_scheduled_tokens.keys():
            self._check(statuses[name], output.num_scheduled_tokens[name])
            self.left_out += 1
        return rest

    def _check(self, status, tokens):
        status.update_offload_keys()
        most = self.connector._calc_num_offloadable_tokens(status, status.req.num_computed_tokens + tokens)
        for config, state in zip(status.config.kv_group_configs, status.group_states, strict=True):
            assert status.storable_chunks(config, state, most) <= state.next_stored_chunk_idx


def make(config, quiet, capacity=40, chunks=80, kinds=()):
    engine = TieredEngine(
        config, capacity, chunks, window=64 if kinds else None, kinds=kinds, max_num_batched_tokens=100
    )
    connector = engine.scheduler.connector.scheduler
    connector._quiet = quiet(BLOCK_TOKENS)
    connector._quiet.connector = connector
    return engine


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("kinds", "offload"),
    [
        ((), "All"),
        ((), "Prompt"),
        pytest.param(
            ("full", "window"),
            "All",
            marks=pytest.mark.skipif(not keep_groups_in_tiers(), reason="refused with this vLLM"),
        ),
    ],
)
def test_vllm_would_store_nothing_of_who_is_left_out(config, kinds, offload, seed):
    engine, chance = make(config, Checked, kinds=kinds), Random(seed)
    engine.declare(declare("acme", reserved=10, offload=offload), declare("burst", offload=offload))
    for number in range(300):
        if number < 200 and chance.random() < 0.15:
            tenant, blocks, answer = chance.choice(["acme", "burst"]), chance.randrange(10), chance.randint(1, 70)
            # All begin alike, so that some of it is found, in the blocks or in the tier.
            engine.send(tenant, prompt(blocks, seed=1), max_tokens=answer)
        engine.step()
        engine.check()
    engine.run()
    assert engine.worker.stored
    assert engine.scheduler.connector.scheduler._quiet.left_out
    engine.scheduler.shutdown()


def test_who_generates_is_looked_at_once_for_each_chunk(config):
    engine = make(config, Looking)
    engine.declare(declare("acme"))
    engine.ask("acme", prompt(1, extra=0), max_tokens=10 * BLOCK_TOKENS)
    looked_at = engine.scheduler.connector.scheduler._quiet.looked_at
    # The last token of a chunk may be known a step later than it is computed.
    assert 10 <= looked_at <= 22
    assert engine.held("acme") == 10
    engine.scheduler.shutdown()


def test_who_keeps_nothing_in_tiers_is_looked_at_never(config):
    engine = make(config, Looking)
    engine.declare(declare("acme", offload="Never"))
    connector = engine.scheduler.connector.scheduler
    engine.send("acme", prompt(4), max_tokens=3 * BLOCK_TOKENS)
    while engine.scheduler.has_requests():
        engine.step()
        assert not connector._req_status
    assert connector._quiet.looked_at == 0
    engine.declare(declare("acme", offload="All"))
    tokens = engine.stored("acme", 4)
    assert engine.cached_tokens(engine.ask("acme", tokens)) == 4 * BLOCK_TOKENS, "from now on"
    engine.scheduler.shutdown()


def test_a_change_reaches_a_request_when_its_next_chunk_is_full(config):
    engine = make(config, Looking)
    engine.declare(declare("acme", offload="Prompt"))
    request = engine.send("acme", prompt(2, extra=0), max_tokens=6 * BLOCK_TOKENS)
    while request.num_output_tokens < 2 * BLOCK_TOKENS + 3:
        engine.step()
    engine.declare(declare("acme", offload="All"))
    while engine.scheduler.has_requests():
        engine.step()
    assert engine.held("acme") == 7, "all but the last token, which nothing was computed of"
    engine.scheduler.shutdown()


def test_who_is_left_out_gets_no_block_before_it_was_copied(config):
    """A block that is still to be copied is copied before another request computes there, whichever that is."""
    engine = make(config, Looking, capacity=8)
    engine.declare(declare("acme"), declare("burst", offload="Never"))
    engine.worker.fastest = engine.worker.slowest = 10_000
    tokens = prompt(6)
    request = engine.send("acme", tokens)
    while not request.is_finished():
        engine.step()
    engine.step()
    assert engine.worker.is_copying
    flushed = []
    driver_copy = engine.copy

    def watch(output):
        flushed.extend(output.kv_connector_metadata.jobs_to_flush)
        return driver_copy(output)

    engine.copy = watch
    other = engine.send("burst", prompt(7))
    while not other.is_finished():
        engine.step()
    assert flushed
    engine.worker.fastest = engine.worker.slowest = 0
    engine.worker.hurry()
    engine.rest()
    assert engine.cached_tokens(engine.ask("acme", tokens)) == 6 * BLOCK_TOKENS
    engine.scheduler.shutdown()


def test_what_a_preempted_request_computes_again_is_stored_as_it_is_computed(config):
    engine = make(config, Checked)
    engine.declare(declare("acme"))
    tokens = prompt(12)
    request = engine.send("acme", tokens, max_tokens=3 * BLOCK_TOKENS)
    while request.num_output_tokens < BLOCK_TOKENS or engine.worker.is_copying:
        engine.step()
    assert engine.held("acme") == 13
    engine.declare(declare("acme", tiers=(TierShare(tier="cpu", limit=0),)))
    engine.declare(declare("acme"))
    assert engine.held("acme") == 0
    beginning = engine.send("acme", tokens[: 4 * BLOCK_TOKENS + 1])
    while not beginning.is_finished() or engine.worker.is_copying:
        engine.step()
    assert engine.held("acme") == 4
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    while request.num_computed_tokens <= 4 * BLOCK_TOKENS:
        engine.step()
    assert engine.worker.loaded == 4
    assert engine.held("acme") == request.num_computed_tokens // BLOCK_TOKENS < 12
    engine.run()
    engine.scheduler.shutdown()
