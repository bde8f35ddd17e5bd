"""A disk below the memory of models whose layers see back differently far: prompts are loaded and evicted whole."""

import pytest
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, prompt, vllm_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.engine.test_tier_groups import KINDS, ONE, WINDOW_BLOCKS, chunks_of
from tests.engine.tiered_driver import TieredEngine
from tests.zones.core import declare

pytestmark = pytest.mark.skipif(not keep_groups_in_tiers(), reason="refused with this vLLM")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def start(config):
    engines = []

    def make(capacity=60, chunks=100, files=1000, kinds=ONE, **flags):
        engines.append(TieredEngine(config, capacity, chunks, files, window=64, kinds=kinds, **flags))
        return engines[-1]

    yield make
    for each in engines:
        check(each)
        each.scheduler.shutdown()


def check(engine):
    """Checks that each chunk in a tier belongs to some hit."""
    for tier in (engine.memory, engine.disk.tier):
        tier.check()
        for zone in tier.ledger.zones.values():
            assert all(chunk in tier.links for chunk in zone.cached)


def share(engine, tier="disk", **chunks):
    size = engine.memory.chunk_bytes
    return (TierShare(tier=tier, **{name: count * size for name, count in chunks.items()}),)


def forget_memory(engine):
    """Empties the memory tier, so that only the disk has what was stored."""
    manager = engine.scheduler.connector.scheduler.manager
    for given_up in engine.memory.evict_all():
        manager.primary_tier._forget(given_up)


def on_disk(engine, tenant):
    return engine.held(tenant, engine.disk.tier)


def stored_with_a_longer_one(engine):
    """A prompt of 8 blocks, and one of 16 that begins with it."""
    short = engine.stored("acme", 8)
    long = [*short[: 8 * BLOCK_TOKENS], *prompt(8)]
    engine.ask("acme", long)
    engine.evict("acme")
    return short, long


class TestWhatIsFound:
    @KINDS
    @pytest.mark.parametrize("blocks", [1, 3, 4, 5, 20, 40])
    @pytest.mark.shows("tiers of several groups")
    def test_what_left_blocks_and_memory_comes_back_from_the_disk(self, start, kinds, blocks):
        engine = start(capacity=130, kinds=kinds, chunks=200, max_num_batched_tokens=64)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", blocks)
        assert on_disk(engine, "acme") == chunks_of(blocks, kinds)
        forget_memory(engine)
        request = engine.ask("acme", tokens)
        assert engine.cached_tokens(request) == blocks * BLOCK_TOKENS
        assert engine.worker.loaded == chunks_of(blocks, kinds)

    def test_more_than_a_hundred_blocks_of_one_step_are_stored_whole_and_come_back(self, start):
        engine = start(capacity=260, chunks=300)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 110)
        assert on_disk(engine, "acme") == chunks_of(110) > 64
        forget_memory(engine)
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 110 * BLOCK_TOKENS

    def test_what_a_flood_drove_out_of_memory_comes_back(self, start):
        engine = start(chunks=3 * chunks_of(8))
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        for _ in range(4):
            engine.stored("acme", 8)
        assert engine.held("acme") == 3 * chunks_of(8)
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 8 * BLOCK_TOKENS
        assert engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits == chunks_of(8)

    def test_of_a_hit_only_what_memory_lacks_comes_from_the_disk(self, start):
        engine = start()
        engine.declare(declare("acme"))
        short, long = stored_with_a_longer_one(engine)
        forget_memory(engine)
        engine.ask("acme", short)
        engine.evict("acme")
        read = engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits
        assert read == chunks_of(8)
        assert engine.cached_tokens(engine.ask("acme", long)) == 16 * BLOCK_TOKENS
        read = engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits - read
        assert read == 8 + WINDOW_BLOCKS

    def test_what_is_in_the_blocks_is_not_brought_up(self, start):
        engine = start()
        engine.declare(declare("acme"))
        first = prompt(8, extra=0)
        long = [*first, *prompt(8)]
        engine.ask("acme", long)
        engine.evict("acme")
        engine.ask("acme", first + prompt(1))
        forget_memory(engine)
        assert engine.cached_tokens(engine.ask("acme", long)) == 16 * BLOCK_TOKENS
        hits = engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits
        assert hits <= 8 + WINDOW_BLOCKS + chunks_of(8)

    def test_a_conversation_goes_on_where_its_last_prompt_ended(self, start):
        engine = start(capacity=100)
        engine.declare(declare("acme"))
        tokens = prompt(6)
        for turn in range(4):
            request = engine.ask("acme", tokens, max_tokens=2 * BLOCK_TOKENS)
            engine.evict("acme")
            forget_memory(engine)
            assert engine.cached_tokens(request) == (6 + 5 * (turn - 1) if turn else 0) * BLOCK_TOKENS
            tokens = [*request.all_token_ids, *prompt(3)][: (6 + 5 * (turn + 1)) * BLOCK_TOKENS + 1]

    def test_nothing_is_found_of_another_tenants(self, start):
        engine = start()
        engine.declare(declare("acme"), declare("burst"))
        tokens = engine.stored("acme", 8)
        forget_memory(engine)
        assert engine.cached_tokens(engine.ask("burst", tokens)) == 0

    def test_a_request_that_waits_for_the_disk_stops_no_other_and_is_not_taken_for_a_miss(self, start):
        engine = start()
        engine.declare(declare("acme"), declare("burst"))
        tokens = engine.stored("acme", 8)
        forget_memory(engine)
        engine.disk.hold()
        request, other = engine.send("acme", tokens), engine.send("burst", prompt(4))
        for _ in range(10):
            engine.step()
        assert (request.status, request.num_computed_tokens, other.is_finished()) == (RequestStatus.WAITING, 0, True)
        engine.disk.release()
        engine.run()
        engine.rest()
        assert engine.cached_tokens(request) == 8 * BLOCK_TOKENS

    def test_two_who_look_for_the_same_bring_it_up_once(self, start):
        engine = start()
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        forget_memory(engine)
        engine.disk.hold()
        requests = [engine.send("acme", tokens) for _ in range(2)]
        for _ in range(3):
            engine.step()
        engine.disk.release()
        engine.run()
        engine.rest()
        assert [engine.cached_tokens(each) for each in requests] == [8 * BLOCK_TOKENS] * 2
        assert engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits == chunks_of(8)


class TestNothingIsTriedForEver:
    def test_what_memory_has_no_room_for_is_computed(self, start):
        engine = start()
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        forget_memory(engine)
        engine.declare(declare("acme", tiers=share(engine, "cpu", limit=chunks_of(8) - 1)))
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 0

    def test_what_others_keep_memory_from_is_computed(self, start):
        engine = start(chunks=40)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 12)
        forget_memory(engine)
        engine.declare(declare("acme"), declare("gold", tiers=share(engine, "cpu", reserved=30)))
        gold = engine.send("gold", prompt(20), max_tokens=200)
        for _ in range(4):
            engine.step()
        request = engine.send("acme", tokens)
        while not request.is_finished():
            engine.step()
        assert not gold.is_finished()
        assert engine.cached_tokens(request) == 0
        engine.run()
        engine.rest()

    def test_what_is_more_than_may_be_on_its_way_is_computed(self, start):
        engine = start()
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        forget_memory(engine)
        engine.disk.tier.bounds = TransferBounds(stores=1024, loads=chunks_of(8) - 1)
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 0

    def test_what_was_brought_up_and_driven_out_before_it_could_be_used_is_computed(self, start):
        engine = start()
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        forget_memory(engine)
        engine.disk.hold()
        request = engine.send("acme", tokens)
        engine.step()
        engine.disk.release()
        engine.scheduler.set_pause_state(PauseState.PAUSED_NEW)
        while engine.scheduler.connector.scheduler.manager.has_pending_work():
            engine.step()
        forget_memory(engine)
        engine.scheduler.set_pause_state(PauseState.UNPAUSED)
        engine.run()
        engine.rest()
        assert engine.cached_tokens(request) == 0
        assert engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits == chunks_of(8)

    def test_what_the_disk_fails_to_read_is_computed(self, start):
        engine = start()
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        forget_memory(engine)
        engine.disk._fails = lambda: True
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 0
        engine.disk._fails = lambda: False


class TestNothingOutlivesItsUse:
    @pytest.mark.shows("tiers of several groups")
    def test_prompts_leave_the_disk_whole(self, start):
        engine = start(files=2 * chunks_of(8) + 3)
        engine.declare(declare("acme"))
        oldest, *others = [engine.stored("acme", 8) for _ in range(3)]
        assert on_disk(engine, "acme") == 2 * chunks_of(8)
        for tokens in others:
            forget_memory(engine)
            assert engine.cached_tokens(engine.ask("acme", tokens)) == 8 * BLOCK_TOKENS
            engine.evict("acme")
        forget_memory(engine)
        assert engine.cached_tokens(engine.ask("acme", oldest)) == 0

    def test_a_hit_with_one_lost_chunk_goes_with_it(self, start):
        engine = start()
        engine.declare(declare("acme"))
        engine.stored("acme", 8)
        zone, key = next(iter(engine.disk._files))
        engine.disk.lose(zone, [key])
        assert on_disk(engine, "acme") == 0

    def test_a_hit_with_one_chunk_that_can_not_be_written_is_not_kept(self, start):
        engine = start()
        engine.declare(declare("acme"))
        engine.disk._fails = lambda: True
        engine.stored("acme", 8)
        assert on_disk(engine, "acme") == 0
        engine.disk._fails = lambda: False

    def test_what_prompts_have_in_common_stays_with_the_other(self, start):
        engine = start()
        engine.declare(declare("acme"))
        _, long = stored_with_a_longer_one(engine)
        assert on_disk(engine, "acme") == 16 + 2 * WINDOW_BLOCKS
        engine.declare(declare("acme", tiers=share(engine, limit=16 + 2 * WINDOW_BLOCKS - 1)))
        assert on_disk(engine, "acme") == 16 + WINDOW_BLOCKS
        forget_memory(engine)
        assert engine.cached_tokens(engine.ask("acme", long)) == 16 * BLOCK_TOKENS

    def test_what_makes_room_for_a_prompt_takes_nothing_along_that_it_needs(self, start):
        engine = start(files=16 + 2 * WINDOW_BLOCKS - 1)
        engine.declare(declare("acme"))
        _, long = stored_with_a_longer_one(engine)
        forget_memory(engine)
        assert on_disk(engine, "acme") == 16 + WINDOW_BLOCKS
        assert engine.cached_tokens(engine.ask("acme", long)) == 16 * BLOCK_TOKENS

    def test_a_prompt_that_can_not_be_kept_whole_drives_nothing_out(self, start):
        engine = start()
        engine.declare(declare("acme", tiers=share(engine, limit=chunks_of(8))))
        kept = engine.stored("acme", 8)
        engine.ask("acme", prompt(9))
        engine.evict("acme")
        forget_memory(engine)
        assert engine.cached_tokens(engine.ask("acme", kept)) == 8 * BLOCK_TOKENS

    def test_of_a_request_whose_client_goes_away_in_the_midst_of_its_prompt_nothing_is_kept(self, start):
        engine = start(max_num_batched_tokens=64)
        engine.declare(declare("acme"))
        request = engine.send("acme", prompt(20))
        for _ in range(3):
            engine.step()
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        engine.rest()
        assert (engine.held("acme"), on_disk(engine, "acme")) == (0, 0)

    def test_who_goes_away_while_it_waits_for_the_disk_leaves_nothing_in_memory(self, start):
        engine = start()
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)[: 8 * BLOCK_TOKENS] + prompt(8)
        forget_memory(engine)
        engine.disk.hold()
        request = engine.send("acme", tokens)
        engine.step()
        assert engine.held("acme") == chunks_of(8)
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        engine.step()
        engine.disk.release()
        engine.rest()
        assert (engine.held("acme"), on_disk(engine, "acme")) == (0, chunks_of(8))

    def test_a_purge_leaves_nothing(self, start):
        engine = start()
        engine.declare(declare("acme"), declare("burst"))
        tokens, others = engine.stored("acme", 8), engine.stored("burst", 8)
        engine.declare(declare("acme", purge="once"), declare("burst"))
        assert on_disk(engine, "acme") == 0
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 0
        forget_memory(engine)
        assert engine.cached_tokens(engine.ask("burst", others)) == 8 * BLOCK_TOKENS

    def test_a_purge_while_a_prompt_is_written_leaves_nothing(self, start):
        engine = start()
        engine.declare(declare("acme"))
        engine.disk.hold()
        engine.send("acme", prompt(8))
        engine.run()
        for _ in range(3):
            engine.step()
        assert on_disk(engine, "acme") == chunks_of(8)
        engine.declare(declare("acme", purge="once"))
        engine.disk.release()
        engine.rest()
        assert on_disk(engine, "acme") == 0

    @pytest.mark.shows("tiers of several groups")
    def test_what_is_reserved_is_had_from_what_others_hold_above_theirs(self, start):
        engine = start(files=4 * chunks_of(8))
        engine.declare(declare("gold", tiers=share(engine, reserved=2 * chunks_of(8))), declare("burst", after=0))
        for _ in range(4):
            engine.stored("burst", 8)
        prompts = [engine.stored("gold", 8) for _ in range(2)]
        for _ in range(6):
            engine.stored("burst", 8)
        forget_memory(engine)
        for tokens in prompts:
            assert engine.cached_tokens(engine.ask("gold", tokens)) == 8 * BLOCK_TOKENS

    def test_who_waits_for_what_another_brings_up_has_it_when_that_one_goes_away(self, start):
        engine = start()
        engine.declare(declare("acme"))
        common = engine.stored("acme", 8)[: 8 * BLOCK_TOKENS]
        forget_memory(engine)
        engine.disk.hold()
        first, *others = [engine.send("acme", common + prompt(8)) for _ in range(4)]
        engine.step()
        engine.step()
        engine.scheduler.finish_requests(first.request_id, RequestStatus.FINISHED_ABORTED)
        engine.step()
        engine.disk.release()
        engine.run()
        engine.rest()
        assert [engine.cached_tokens(each) for each in others] == [8 * BLOCK_TOKENS] * 3
        assert engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits == chunks_of(8)

    @pytest.mark.parametrize("failing", [0, 5, 8, 11])
    def test_after_one_chunk_of_a_hit_can_not_be_read_nothing_is_left_or_tried_again(self, start, failing):
        engine = start(files=1000)
        engine.declare(declare("acme"))
        common = engine.stored("acme", 8)[: 8 * BLOCK_TOKENS]
        forget_memory(engine)
        left = iter(range(chunks_of(8)))
        engine.disk._fails = lambda: next(left, None) == failing
        requests = [engine.send("acme", common + prompt(4)) for _ in range(3)]
        engine.run()
        engine.rest()
        engine.disk._fails = lambda: False
        assert engine.disk.tier.counts_of(engine.disk.tier.ledger.zones["acme"]).hits == chunks_of(8)
        assert engine.cached_tokens(requests[0]) == 0
        for given in requests:
            engine.evict("acme")
            forget_memory(engine)
            request = engine.ask("acme", given.prompt_token_ids)
            assert engine.cached_tokens(request) == 12 * BLOCK_TOKENS
