"""Tiers of models whose layers see back differently far: what is kept of each group, and what is evicted together."""

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, prompt, vllm_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.engine.tier_worker import CHUNK_BYTES
from tests.engine.tiered_driver import LOADING, TieredEngine
from tests.zones.core import declare

pytestmark = pytest.mark.skipif(not keep_groups_in_tiers(), reason="refused with this vLLM")

WINDOW_BLOCKS = 4
ONE, TWO = ("full", "window"), ("window", "full", "window")
STATE, STATE_AND_WINDOW = ("full", "mamba align"), ("full", "window", "mamba align")
TWO_STATES = ("full", "mamba align", "mamba align")
KINDS = pytest.mark.parametrize("kinds", [ONE, TWO, STATE, STATE_AND_WINDOW], ids="+".join)


def chunks_of(blocks, kinds=ONE):
    """Chunks kept of a prompt of `blocks` blocks: all of full attention, the last of each window, one state."""
    most = {"full": blocks, "window": WINDOW_BLOCKS, "mamba align": 1}
    return sum(min(blocks, most[kind]) for kind in kinds)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def start(config):
    engines = []

    def make(capacity=60, chunks=100, kinds=ONE, window=WINDOW_BLOCKS * BLOCK_TOKENS, **flags):
        engines.append(TieredEngine(config, capacity, chunks, window=window, kinds=kinds, **flags))
        return engines[-1]

    yield make
    for each in engines:
        each.memory.check()
        each.scheduler.shutdown()


def share(engine, **chunks):
    """A share of the memory tier."""
    size = engine.memory.chunk_bytes
    return (TierShare(tier="cpu", **{name: count * size for name, count in chunks.items()}),)


class TestWhatIsFound:
    @pytest.mark.shows("tiers of several groups")
    @KINDS
    def test_what_left_the_blocks_is_found_in_memory(self, start, kinds):
        engine = start(kinds=kinds)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        assert engine.held("acme") == chunks_of(8, kinds)
        again = engine.ask("acme", tokens)
        assert engine.cached_tokens(again) == 8 * BLOCK_TOKENS
        assert engine.worker.loaded == chunks_of(8, kinds)

    @KINDS
    @pytest.mark.parametrize("blocks", [1, 3, 4, 5, 20])
    def test_a_prompt_of_any_length_is_found_that_is_computed_in_parts(self, start, kinds, blocks):
        engine = start(kinds=kinds, max_num_batched_tokens=40)
        engine.declare(declare("acme"))
        again = engine.ask("acme", engine.stored("acme", blocks))
        assert engine.cached_tokens(again) == blocks * BLOCK_TOKENS

    @pytest.mark.parametrize("window", [WINDOW_BLOCKS * BLOCK_TOKENS + more for more in (-15, -14, -1)])
    def test_a_window_may_end_anywhere_in_a_block(self, start, window):
        engine = start(window=window)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        assert engine.held("acme") == chunks_of(8)
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 8 * BLOCK_TOKENS

    def test_a_prompt_that_ends_where_a_block_does_is_found_up_to_its_last_block(self, start):
        engine = start()
        engine.declare(declare("acme"))
        tokens = prompt(8, extra=0)
        for _ in range(2):
            again = engine.ask("acme", tokens)
            engine.evict("acme")
        assert engine.cached_tokens(again) == 7 * BLOCK_TOKENS
        assert engine.held("acme") == chunks_of(7)

    @KINDS
    def test_a_conversation_goes_on_where_its_last_prompt_ended(self, start, kinds):
        engine = start(capacity=100, kinds=kinds)
        engine.declare(declare("acme"))
        tokens = prompt(6)
        for turn in range(4):
            request = engine.ask("acme", tokens, max_tokens=2 * BLOCK_TOKENS)
            engine.evict("acme")
            assert engine.cached_tokens(request) == (6 + 5 * (turn - 1) if turn else 0) * BLOCK_TOKENS
            tokens = [*request.all_token_ids, *prompt(3)][: (6 + 5 * (turn + 1)) * BLOCK_TOKENS + 1]

    @pytest.mark.shows("tiers of several groups")
    def test_what_others_were_seen_to_have_in_common_is_found_by_the_next(self, start):
        engine = start()
        engine.declare(declare("acme"))
        common = prompt(6, extra=0)
        for _ in range(2):
            engine.ask("acme", common + prompt(3))
        engine.evict("acme")
        request = engine.ask("acme", common + prompt(3))
        assert engine.cached_tokens(request) == 6 * BLOCK_TOKENS

    def test_nothing_is_found_of_another_tenants(self, start):
        engine = start()
        engine.declare(declare("acme"), declare("burst"))
        other = engine.ask("burst", engine.stored("acme", 8))
        assert (engine.cached_tokens(other), engine.worker.loaded) == (0, 0)

    def test_nothing_of_answers_is_kept_that_no_request_would_find(self, start):
        engine = start()
        engine.declare(declare("acme", offload="All"))
        engine.ask("acme", prompt(3), max_tokens=4 * BLOCK_TOKENS)
        assert (engine.worker.stored, engine.held("acme")) == (chunks_of(3), chunks_of(3))

    def test_a_zone_that_keeps_nothing_keeps_nothing(self, start):
        engine = start()
        engine.declare(declare("acme", offload="Never"))
        engine.ask("acme", prompt(8))
        assert engine.held("acme") == 0

    def test_a_load_that_takes_its_time_stops_no_other_request(self, start):
        engine = start()
        engine.declare(declare("acme"), declare("burst"))
        request = engine.loading("burst", engine.stored("burst", 8))
        other = engine.send("acme", prompt(4))
        engine.step()
        engine.step()
        assert (request.status, other.is_finished()) == (LOADING, True)
        engine.land()
        engine.run()
        assert engine.cached_tokens(request) == 8 * BLOCK_TOKENS

    def test_what_has_landed_goes_on_however_many_blocks_others_have_taken_meanwhile(self, start):
        """It takes a block for its next state when its load begins: vLLM would ask for it after the load."""
        engine = start(capacity=24, kinds=STATE)
        engine.declare(declare("acme"), declare("burst"))
        request = engine.loading("acme", engine.stored("acme", 8))
        engine.evict("burst")
        for _ in range(40):
            engine.send("burst", prompt(0), max_tokens=200)
        for _ in range(10):
            engine.step()
        pool = engine.scheduler.block_pool
        assert pool.available_to(engine.zone("burst")) <= 1, "no further request of burst has room"
        engine.land()
        engine.step()
        engine.step()
        assert request.num_computed_tokens > 8 * BLOCK_TOKENS
        assert engine.cached_tokens(request) == 8 * BLOCK_TOKENS

    @pytest.mark.parametrize(("kinds", "limit"), [(STATE, 7), (STATE_AND_WINDOW, 12), (TWO_STATES, 9)], ids=str)
    def test_a_load_behind_a_state_in_the_blocks_needs_no_more_than_the_zone_may_have(self, start, kinds, limit):
        """VLLM also counts the state that was found, which nothing needs after what is loaded."""
        engine = start(kinds=kinds)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 4)
        engine.ask("acme", tokens[: BLOCK_TOKENS + 1])
        engine.declare(declare("acme", limit=limit))
        request = engine.ask("acme", tokens)
        assert engine.cached_tokens(request) == 4 * BLOCK_TOKENS

    def test_of_a_load_whose_client_goes_away_no_block_is_left(self, start):
        engine = start(capacity=24, kinds=STATE)
        engine.declare(declare("acme"))
        request = engine.loading("acme", engine.stored("acme", 8))
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        engine.land()
        engine.rest()
        assert engine.zone("acme").in_use == 0


class TestNothingOutlivesItsUse:
    @pytest.mark.shows("tiers of several groups")
    def test_prompts_leave_memory_whole(self, start):
        engine = start(chunks=2 * chunks_of(8) + 3)
        engine.declare(declare("acme"))
        oldest, *others = [engine.stored("acme", 8) for _ in range(3)]
        assert engine.held("acme") == 2 * chunks_of(8)
        for tokens in others:
            assert engine.cached_tokens(engine.ask("acme", tokens)) == 8 * BLOCK_TOKENS
        assert engine.cached_tokens(engine.ask("acme", oldest)) == 0

    def test_a_conversation_that_goes_on_leaves_the_windows_of_its_beginning_behind_first(self, start):
        engine = start(chunks=16 + 2 * WINDOW_BLOCKS)
        engine.declare(declare("acme"))
        tokens = prompt(8)
        for blocks in (8, 16):
            tokens = [*tokens, *prompt(8)][: blocks * BLOCK_TOKENS + 1]
            engine.ask("acme", tokens)
            engine.evict("acme")
        assert engine.held("acme") == 16 + 2 * WINDOW_BLOCKS
        engine.declare(declare("acme", tiers=share(engine, limit=16 + 2 * WINDOW_BLOCKS - 1)))
        assert engine.held("acme") == 16 + WINDOW_BLOCKS
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 16 * BLOCK_TOKENS

    def test_a_prompt_that_can_not_be_kept_whole_drives_nothing_out(self, start):
        engine = start()
        engine.declare(declare("acme", tiers=share(engine, limit=chunks_of(8))))
        kept = engine.stored("acme", 8)
        engine.ask("acme", prompt(9))
        engine.evict("acme")
        assert engine.cached_tokens(engine.ask("acme", kept)) == 8 * BLOCK_TOKENS

    @pytest.mark.shows("tiers of several groups")
    def test_of_a_prompt_for_which_there_was_not_enough_room_nothing_is_kept(self, start):
        engine = start(chunks=40, max_num_batched_tokens=64)
        engine.declare(declare("acme"), declare("gold", tiers=share(engine, reserved=30)))
        gold = engine.stored("gold", 8)
        engine.send("gold", prompt(1), max_tokens=100)
        request = engine.send("acme", prompt(12))
        while not request.is_finished():
            engine.step()
        for _ in range(4):
            engine.step()
        assert engine.held("acme") == 0
        engine.run()
        engine.evict("gold")
        assert engine.cached_tokens(engine.ask("gold", gold)) == 8 * BLOCK_TOKENS

    def test_of_a_request_whose_client_goes_away_in_the_midst_of_its_prompt_nothing_is_kept(self, start):
        engine = start(max_num_batched_tokens=64)
        engine.declare(declare("acme"))
        request = engine.send("acme", prompt(20))
        for _ in range(3):
            engine.step()
        assert engine.held("acme") > 0
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        engine.rest()
        assert engine.held("acme") == 0

    def test_what_others_count_on_outlives_the_request_that_stored_it(self, start):
        engine = start(max_num_batched_tokens=128, long_prefill_token_threshold=64)
        engine.declare(declare("acme"))
        common = prompt(8, extra=0)
        gone = engine.send("acme", common + prompt(20))
        engine.step()
        tokens = common + prompt(3)
        request = engine.send("acme", tokens)
        for _ in range(2):
            engine.step()
        assert (gone.num_computed_tokens, request.num_computed_tokens) == (16 * BLOCK_TOKENS, 8 * BLOCK_TOKENS)
        engine.scheduler.finish_requests(gone.request_id, RequestStatus.FINISHED_ABORTED)
        engine.run()
        engine.rest()
        engine.evict("acme")
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 11 * BLOCK_TOKENS

    def test_what_a_request_goes_on_from_outlives_the_hit_that_it_found(self, start):
        engine = start(max_num_batched_tokens=64)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)[: 8 * BLOCK_TOKENS] + prompt(8)
        request = engine.send("acme", tokens)
        while request.num_computed_tokens < 12 * BLOCK_TOKENS:
            engine.step()
        connector = engine.scheduler.connector.scheduler
        status = connector._req_status[request.request_id]
        end_of_window = status.group_states[1].offload_keys[7]
        connector.manager.primary_tier.lose([end_of_window], status.req_context)
        engine.run()
        engine.rest()
        engine.evict("acme")
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 16 * BLOCK_TOKENS

    def test_what_a_prompt_needs_is_reported_once_however_many_steps_it_takes(self, start, monkeypatch):
        engine = start(max_num_batched_tokens=64)
        engine.declare(declare("acme"))
        connector, reported = engine.scheduler.connector.scheduler, []
        hits_of = connector._hits_of
        monkeypatch.setattr(connector, "_hits_of", lambda status: reported.append(status) or hits_of(status))
        engine.stored("acme", 20)
        assert (len(reported), engine.held("acme")) == (1, chunks_of(20))

    def test_what_a_share_has_no_room_for_any_more_goes_whole(self, start):
        engine = start()
        engine.declare(declare("acme"))
        older, newer = engine.stored("acme", 8), engine.stored("acme", 6)
        engine.declare(declare("acme", tiers=share(engine, limit=chunks_of(8) + chunks_of(6) - 1)))
        assert engine.held("acme") == chunks_of(6)
        assert engine.cached_tokens(engine.ask("acme", newer)) == 6 * BLOCK_TOKENS
        assert engine.cached_tokens(engine.ask("acme", older)) == 0

    def test_a_purge_leaves_nothing(self, start):
        engine = start()
        engine.declare(declare("acme"), declare("burst"))
        tokens, others = engine.stored("acme", 8), engine.stored("burst", 8)
        engine.declare(declare("acme", purge="once"), declare("burst"))
        assert engine.held("acme") == 0
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 0
        assert engine.cached_tokens(engine.ask("burst", others)) == 8 * BLOCK_TOKENS


class TestShares:
    @pytest.mark.shows("tiers of several groups")
    def test_what_is_reserved_is_had_at_once_from_what_others_hold_above_theirs(self, start):
        engine = start(chunks=4 * chunks_of(8))
        engine.declare(declare("gold", tiers=share(engine, reserved=2 * chunks_of(8))), declare("burst", after=0))
        for _ in range(4):
            engine.stored("burst", 8)
        prompts = [engine.stored("gold", 8) for _ in range(2)]
        for _ in range(6):
            engine.stored("burst", 8)
        for tokens in prompts:
            assert engine.cached_tokens(engine.ask("gold", tokens)) == 8 * BLOCK_TOKENS

    def test_a_prompt_is_loaded_whole_or_not_at_all(self, start):
        engine = start(chunks=60)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        for loads, blocks in ((chunks_of(8) - 1, 0), (chunks_of(8), 8)):
            engine.memory.bounds = TransferBounds(stores=1024, loads=loads)
            assert engine.cached_tokens(engine.ask("acme", tokens)) == blocks * BLOCK_TOKENS
            engine.evict("acme")
        assert engine.worker.loaded == chunks_of(8)

    def test_the_longest_prompt_may_be_in_transfer_at_once(self, start):
        engine = start(kinds=TWO)
        longest = engine.scheduler.max_model_len // BLOCK_TOKENS * len(TWO)
        assert min(engine.memory.bounds.stores, engine.memory.bounds.loads) >= longest

    def test_a_chunk_has_room_for_a_block_of_each_group(self, start):
        assert start(kinds=TWO).memory.chunk_bytes == 3 * CHUNK_BYTES
