"""Which prefixes move to tiers by a zone's terms of admission, with vLLM's real scheduler and connector."""

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, prompt, vllm_config
from tenantzone_contract.reports.tier_effect import MIN_CHUNKS, WINDOW_SECONDS
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tests.engine.clock import Clock
from tests.engine.tiered_driver import TieredEngine
from tests.zones.core import declare


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def start(config):
    engines = []

    def make(*args, admission="SeenTwice", **kwargs):
        engines.append(TieredEngine(config, *args, **kwargs))
        tiers = (TierShare(tier="cpu", admission=admission),)
        engines[-1].declare(declare("acme", tiers=tiers), declare("burst"))
        return engines[-1]

    yield make
    for each in engines:
        each.memory.check()
        each.scheduler.shutdown()


def ask(engine, tokens, tenant="acme"):
    """Sends a request, and evicts its cached blocks. Returns how many blocks were found."""
    request = engine.ask(tenant, tokens)
    engine.evict(tenant)
    return engine.cached_tokens(request) // BLOCK_TOKENS


def test_a_prompt_is_stored_when_it_comes_again(start):
    engine = start(40, 100)
    tokens = prompt(8)
    assert [ask(engine, tokens) for _ in range(3)] == [0, 0, 8]
    assert engine.worker.stored == 8
    assert engine.memory.counts_of(engine.memory.zone_for("acme", 0.0)).not_admitted == 8
    assert ask(engine, tokens, "burst") == 0
    assert ask(engine, tokens, "burst") == 8, "it has no such terms"


def test_what_prompts_have_in_common_is_stored_and_what_each_has_alone_is_not(start):
    engine = start(40, 100)
    common = prompt(5, extra=0)
    assert [ask(engine, common + prompt(3)) for _ in range(3)] == [0, 0, 5]
    assert engine.held("acme") == 5


def test_what_is_still_in_the_blocks_when_it_comes_again_is_stored(start):
    engine = start(40, 100)
    tokens = prompt(8)
    engine.ask("acme", tokens)
    engine.ask("acme", tokens)
    engine.evict("acme")
    assert ask(engine, tokens) == 8


def test_a_request_that_comes_back_after_it_was_preempted_does_not_count_twice(start):
    engine = start(40, 100)
    request = engine.send("acme", prompt(8), max_tokens=20)
    for _ in range(3):
        engine.step()
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    engine.rest()
    assert request.is_finished()
    assert engine.held("acme") == 0


def test_a_prompt_that_is_computed_in_parts_is_stored_when_it_comes_again(start):
    engine = start(40, 100, max_num_batched_tokens=40)
    tokens = prompt(8)
    assert [ask(engine, tokens) for _ in range(3)] == [0, 0, 8]


def test_what_the_memory_tier_does_not_admit_the_disk_never_sees(start):
    engine = start(40, 100, 100)
    tokens = prompt(8)
    assert [ask(engine, tokens) for _ in range(3)] == [0, 0, 8]
    assert engine.held("acme", engine.disk.tier) == 8
    ask(engine, prompt(8))
    assert engine.held("acme", engine.disk.tier) == 8


@pytest.mark.skipif(not keep_groups_in_tiers(), reason="refused with this vLLM")
@pytest.mark.parametrize("kinds", [("full", "window"), ("full", "mamba align")], ids="+".join)
def test_a_prompt_that_is_kept_whole_is_stored_whole_when_it_comes_again(start, kinds):
    engine = start(60, 100, kinds=kinds, window=4 * BLOCK_TOKENS)
    tokens = prompt(8)
    assert [ask(engine, tokens) for _ in range(3)] == [0, 0, 8]
    held = engine.held("acme")
    ask(engine, prompt(8))
    assert engine.held("acme") == held


def test_auto_stores_what_comes_again_only_while_little_is_loaded(start):
    clock = Clock()
    with clock.in_force():
        engine = start(40, 100, admission="Auto")
        for _ in range(MIN_CHUNKS // 8 + 1):
            ask(engine, prompt(8))
        stored = engine.worker.stored
        assert stored > MIN_CHUNKS, "nothing was judged yet"
        clock.seconds += WINDOW_SECONDS
        engine.scheduler.let_time_pass()
        ask(engine, prompt(8))
        stored = engine.worker.stored
        tokens = prompt(8)
        assert [ask(engine, tokens) for _ in range(3)] == [0, 0, 8]
        assert engine.worker.stored == stored + 8
