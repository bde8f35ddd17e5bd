"""Storages below engines whose model has several groups of KV caches: prompts are stored and loaded whole."""

from dataclasses import replace
from threading import Event

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, prompt, vllm_config
from tenantzone_contract.cache.migration import MigrationError, MigrationOrder
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tests.engine.sharing_engines import check_that_it_is_computed_after_its_budget, sharing_engines
from tests.engine.test_tier_groups import KINDS, ONE, STATE, WINDOW_BLOCKS, chunks_of, share
from tests.engine.tier_worker import CHUNK_BYTES
from tests.shared_tier.conftest import brief  # noqa: F401 - a fixture
from tests.shared_tier.conftest import own_manager as manager  # noqa: F401 - a fixture
from tests.shared_tier.engines import ENDLESS, HANG, calls, objects
from tests.zones.core import declare

OBJECT_BYTES = len(ONE) * CHUNK_BYTES + 12 + 4 + 16
"""Bytes of a chunk in a storage: with the seal's nonce, ids and tag."""

pytestmark = pytest.mark.skipif(not keep_groups_in_tiers(), reason="refused with this vLLM")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engines(config, manager):  # noqa: F811 - the fixture
    with sharing_engines(config, manager) as make:

        def made(count=2, kinds=ONE, window=WINDOW_BLOCKS * BLOCK_TOKENS, capacity=60, chunks=100, **options):
            return make(count, kinds=kinds, window=window, capacity=capacity, chunks=chunks, **options)

        yield made


class HeldWrites:
    """Writes of one engine that are held back."""

    def __init__(self, write):
        self._write, self._may_go, self._begun = write, Event(), Event()

    def __call__(self, *arguments):
        self._begun.set()
        self._may_go.wait(HANG)
        return self._write(*arguments)

    @property
    def is_waited_for(self):
        return self._begun.is_set()

    def let_go(self):
        self._may_go.set()


def hold_writes(engine):
    storages = engine.shared._storing._storages
    storages.write = held = HeldWrites(storages.write)
    return held


class TestWhatIsFound:
    def test_what_memory_has_more_of_than_storages_is_not_loaded(self, engines):
        mine, other = engines(2)
        longest = prompt(12)
        mine.shared._storing.breakers.note("files", "down", at_once=True)
        mine.shared._storing.breakers.of("files")._closed_from += 3600
        mine.ask("acme", longest[: 8 * BLOCK_TOKENS + 1])
        other.ask("acme", longest[: 6 * BLOCK_TOKENS + 1])
        mine.evict("acme")
        assert mine.cached_tokens(mine.ask("acme", longest)) == 8 * BLOCK_TOKENS
        assert mine.shared.zones["acme"].counts.read == 0

    @KINDS
    @pytest.mark.parametrize("blocks", [1, 4, 20])
    @pytest.mark.shows("tiers of several groups")
    def test_a_prompt_that_one_engine_computed_another_one_loads(self, engines, manager, kinds, blocks):  # noqa: F811
        first, second = engines(kinds=kinds, capacity=130)
        tokens = prompt(blocks)
        first.ask("acme", tokens)
        assert len(objects(manager)) == chunks_of(blocks, kinds)
        request = second.ask("acme", tokens)
        assert second.cached_tokens(request) == blocks * BLOCK_TOKENS
        assert second.worker.loaded == chunks_of(blocks, kinds)
        assert len(objects(manager)) == chunks_of(blocks, kinds), "stored chunks are not stored again"
        assert second.cached_tokens(second.ask("burst", tokens)) == 0

    def test_what_is_asked_again_and_again_is_offered_to_storages_once(self, engines, manager):  # noqa: F811
        (engine,) = engines(1)
        tokens = prompt(8)
        for _ in range(4):
            engine.ask("acme", tokens)
            engine.evict("acme")
        assert calls(manager, "StartWriteCache") == 1

    @KINDS
    def test_a_conversation_goes_on_on_another_engine_where_its_last_prompt_ended(self, engines, kinds):
        pair = engines(kinds=kinds, capacity=120)
        tokens = prompt(6)
        for turn in range(4):
            engine = pair[turn % 2]
            request = engine.ask("acme", tokens, max_tokens=2 * BLOCK_TOKENS)
            assert engine.cached_tokens(request) == (6 + 5 * (turn - 1) if turn else 0) * BLOCK_TOKENS
            for each in pair:
                each.evict("acme")
                each.forget_memory()
            tokens = [*request.all_token_ids, *prompt(3)][: (6 + 5 * (turn + 1)) * BLOCK_TOKENS + 1]

    def test_of_a_hit_only_what_memory_lacks_comes_from_storages(self, engines):
        first, second = engines(kinds=ONE)
        short = prompt(8)
        long = [*short[: 8 * BLOCK_TOKENS], *prompt(8)]
        first.ask("acme", short)
        first.ask("acme", long)
        second.ask("acme", short)
        second.evict("acme")
        read = second.shared.zones["acme"].counts.hits
        assert second.cached_tokens(second.ask("acme", long)) == 16 * BLOCK_TOKENS
        assert second.shared.zones["acme"].counts.hits - read == 8 + WINDOW_BLOCKS

    def test_a_prompt_that_ends_with_a_block_is_found_up_to_its_last_but_one(self, engines):
        first, second = engines(kinds=STATE)
        tokens = prompt(8, extra=0)
        first.ask("acme", tokens)
        assert second.cached_tokens(second.ask("acme", tokens)) == 7 * BLOCK_TOKENS

    def test_what_a_purge_names_is_never_loaded(self, engines):
        first, second = engines()
        tokens = prompt(6)
        first.ask("acme", tokens)
        for each in (first, second):
            each.declare(declare("acme", purge="once"), declare("burst"))
        assert second.cached_tokens(second.ask("acme", tokens)) == 0

    @pytest.mark.parametrize("is_written", [True, False], ids=["that was written", "while it is written"])
    def test_what_had_to_go_is_offered_again_when_the_zone_keeps_something_again(self, config, brief, is_written):  # noqa: F811
        with sharing_engines(config, brief) as make:
            (engine,) = make(1, kinds=ONE, window=WINDOW_BLOCKS * BLOCK_TOKENS, capacity=60, chunks=100)
            tokens, written = prompt(8), hold_writes(engine)
            request = engine.send("acme", tokens)
            engine.until(lambda: request.request_id not in engine.scheduler.requests and written.is_waited_for)
            if is_written:
                written.let_go()
                engine.rest()
            engine.declare(declare("acme", offload="Never"), declare("burst"))
            written.let_go()
            engine.until(lambda: not engine.shared._removing.has_work)
            engine.declare(declare("acme"), declare("burst"))
            engine.until(lambda: not engine.shared.why_closed("acme"))
            engine.evict("acme")
            engine.ask("acme", tokens)
            assert len(objects(brief, "/acme.")) == chunks_of(8)

    def test_what_storages_are_said_to_lack_is_offered_again(self, engines, manager):  # noqa: F811
        first, second = engines()
        tokens = prompt(8)
        first.ask("acme", tokens)
        objects(manager)[3].unlink()
        request = second.send("acme", tokens)
        second.until(lambda: second.shared.zones["acme"].counts.vanished)
        second.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        second.rest()
        for _ in range(2):
            first.evict("acme")
            first.forget_memory()
            found = first.cached_tokens(first.ask("acme", tokens))
        assert len(objects(manager)) == chunks_of(8)
        assert found == 8 * BLOCK_TOKENS

    def test_what_is_older_than_the_zone_keeps_it_is_offered_again(self, engines, manager):  # noqa: F811
        (engine,) = engines(1)
        tokens = prompt(8)
        engine.ask("acme", tokens)
        engine.shared.zones["acme"].ttl = 1e-9
        engine.evict("acme")
        engine.ask("acme", tokens)
        assert calls(manager, "StartWriteCache") == 2


class TestWhereThereIsNoRoom:
    def test_of_a_hit_that_the_group_has_no_room_for_nothing_is_kept(self, engines, manager):  # noqa: F811
        manager.share({"name": "test.pool", "pools": ["ml/chat"], "total": {"limit": chunks_of(8) * OBJECT_BYTES}})
        first, second = engines()
        long, fits = prompt(9), prompt(8)
        first.ask("acme", long)
        assert first.shared.zones["acme"].counts.refused_writes["room"] == chunks_of(9)
        first.ask("acme", fits)
        assert second.cached_tokens(second.ask("acme", fits)) == 8 * BLOCK_TOKENS
        assert second.cached_tokens(second.ask("acme", long)) == 0

    def test_a_hit_with_an_object_that_is_gone_is_computed_and_stored_anew(self, engines, manager):  # noqa: F811
        first, second = engines()
        tokens = prompt(8)
        first.ask("acme", tokens)
        objects(manager)[3].unlink()
        assert second.cached_tokens(second.ask("acme", tokens)) == 0
        assert second.shared.zones["acme"].counts.vanished == 1
        second.evict("acme")
        second.forget_memory()
        assert second.cached_tokens(second.ask("acme", tokens)) == 8 * BLOCK_TOKENS


class TestAStorageThatFailed:
    def test_it_is_tried_with_a_whole_hit_and_used_again(self, engines):
        first, second = engines()
        tokens = prompt(6)
        first.ask("acme", tokens)
        second.shared._loading.breakers.note("files", "it fails", at_once=True)
        breaker = second.shared._loading.breakers.of("files")
        breaker._closed_from += 3600
        assert second.cached_tokens(second.ask("acme", tokens)) == 0, "it is left alone"
        second.evict("acme")
        second.forget_memory()
        breaker._closed_from = 0
        assert second.cached_tokens(second.ask("acme", tokens)) == 6 * BLOCK_TOKENS
        assert not breaker.is_open

    def test_it_is_not_tried_with_a_hit_that_memory_has_no_room_for(self, engines):
        first, second = engines()
        tokens, other = prompt(8), prompt(8)
        first.ask("acme", tokens)
        first.ask("burst", other)
        second.declare(declare("acme"), declare("burst", tiers=share(second, limit=chunks_of(8))))
        written = hold_writes(second)
        request = second.send("burst", prompt(8))
        second.until(lambda: request.request_id not in second.scheduler.requests and written.is_waited_for)
        second.shared._loading.breakers.note("files", "it fails", at_once=True)
        breaker = second.shared._loading.breakers.of("files")
        breaker._closed_from = 0
        request = second.send("burst", other)
        second.until(lambda: request.request_id not in second.scheduler.requests)
        assert second.cached_tokens(request) == 0
        written.let_go()
        assert second.cached_tokens(second.ask("acme", tokens)) == 8 * BLOCK_TOKENS
        assert not breaker.is_open

    def test_writes_are_not_tried_with_a_hit_that_is_there(self, engines):
        (engine,) = engines(1)
        tokens = prompt(8)
        engine.ask("acme", tokens)
        zone = engine.shared.zones["acme"]
        engine.shared._storing.breakers.note("files", "it fails", at_once=True)
        breaker = engine.shared._storing.breakers.of("files")
        breaker._closed_from = 0
        zone.space.note_lost()
        engine.evict("acme")
        engine.ask("acme", tokens)
        assert breaker.is_open
        before = zone.counts.written
        engine.ask("acme", prompt(8))
        assert zone.counts.written - before == chunks_of(8)
        assert not breaker.is_open


class TestWhoWaits:
    def test_after_its_budget_a_request_is_computed(self, engines, manager):  # noqa: F811
        (engine,) = engines(1, settings=replace(ENDLESS, query_seconds=0.05))
        check_that_it_is_computed_after_its_budget(engine, manager)

    def test_an_order_to_move_a_zone_is_refused_with_the_reason(self, engines):
        (engine,) = engines(1)
        order = MigrationOrder(order="hand-down", tenant="acme", bytes_per_second=1)
        with pytest.raises(MigrationError, match="several groups of KV caches"):
            engine.scheduler.connector.scheduler.migration.begin(order, [])
