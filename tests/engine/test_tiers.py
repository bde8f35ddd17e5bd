"""Tiers below the blocks, with vLLM's real scheduler and connector: what is stored, and which requests find it."""

import time
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, AnyToken, prompt, vllm_config
from tenantzone_contract.reports.report import AdapterReport, ConfigStatus
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.housekeeping import turns
from tenantzone_runtime.housekeeping.report.reporting import make_report
from tests.engine.tier_worker import CHUNK_BYTES
from tests.engine.tiered_driver import LOADING, TieredEngine
from tests.zones.core import declare


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(config):
    engines = []

    def make(*args, **kwargs):
        engines.append(TieredEngine(config, *args, **kwargs))
        return engines[-1]

    yield make
    for each in engines:
        each.scheduler.shutdown()


def adapter(number):
    return LoRARequest(lora_name=f"adapter-{number}", lora_int_id=number, lora_path="/nowhere")


@contextmanager
def steps_in_pauses(step):
    """Makes background work pause after each part, and calls `step` in each pause."""
    pause = SimpleNamespace(sleep=step, perf_counter=time.perf_counter)
    with patch.object(turns, "_TURN_SECONDS", 0.0), patch.object(turns, "time", pause):
        yield


class TestWhatIsFound:
    def test_what_left_the_blocks_is_found_in_memory(self, engine):
        engine = engine(20, 60)
        engine.declare(declare("acme"))
        tokens = prompt(8)
        engine.ask("acme", tokens)
        for _ in range(3):
            engine.ask("acme", prompt(15))
        again = engine.ask("acme", tokens)
        assert engine.cached_tokens(again) == 8 * BLOCK_TOKENS
        assert engine.worker.loaded == 8

    def test_what_left_memory_is_found_on_the_disk(self, engine):
        engine = engine(20, 16, 100)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        for _ in range(3):
            engine.stored("acme", 15)
        assert engine.held("acme", engine.disk.tier) == 8 + 3 * 15
        again = engine.ask("acme", tokens)
        assert engine.cached_tokens(again) == 8 * BLOCK_TOKENS

    def test_nothing_is_found_of_another_tenants(self, engine):
        engine = engine(20, 60, 60)
        engine.declare(declare("acme"), declare("burst"))
        tokens = engine.stored("acme", 8)
        other = engine.ask("burst", tokens)
        assert engine.cached_tokens(other) == 0
        assert engine.worker.loaded == 0

    def test_answers_are_found_as_the_zone_says(self, engine):
        engine = engine(20, 60)
        engine.declare(declare("acme"), declare("burst", offload="Prompt"), declare("calm", offload="Never"))
        for tenant in ("acme", "burst", "calm"):
            engine.ask(tenant, prompt(2), max_tokens=3 * BLOCK_TOKENS)
        assert [engine.held(tenant) for tenant in ("acme", "burst", "calm")] == [5, 2, 0]

    def test_a_request_that_was_refused_stores_nothing(self, engine):
        engine = engine(20, 60)
        engine.declare(declare("acme"))
        engine.ask("stranger", prompt(4))
        engine.ask(None, prompt(4))
        assert engine.memory.ledger.held_blocks == 0

    def test_a_purge_reaches_what_is_in_memory_and_on_the_disk(self, engine):
        engine = engine(20, 60, 60)
        engine.declare(declare("acme"), declare("burst"))
        tokens, others = engine.stored("acme", 8), engine.stored("burst", 8)
        engine.declare(declare("acme", purge="once"), declare("burst"))
        assert (engine.held("acme"), engine.held("acme", engine.disk.tier)) == (0, 0)
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 0
        assert engine.cached_tokens(engine.ask("burst", others)) == 8 * BLOCK_TOKENS

    def test_what_goes_on_while_its_zone_is_purged_is_in_no_tier_after_it(self, engine):
        engine = engine(40, 60, 60)
        engine.declare(declare("acme"))
        tokens = prompt(20)
        request = engine.send("acme", tokens, max_tokens=3 * BLOCK_TOKENS)
        engine.step()
        engine.declare(declare("acme", purge="once"))
        while not request.is_finished():
            engine.step()
        engine.rest()
        assert (engine.held("acme"), engine.held("acme", engine.disk.tier)) == (0, 0)
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 0
        engine.evict("acme")
        assert engine.cached_tokens(engine.ask("acme", tokens)) == 20 * BLOCK_TOKENS, "what came after it is stored"

    def test_nothing_from_before_a_purge_is_loaded_while_it_is_under_way(self, engine):
        engine = engine(40, 60, 60)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        again = []

        def ask_meanwhile(_):
            if not again and engine.zone("acme").purges:
                again.append(engine.send("acme", tokens))
                engine.step()

        with steps_in_pauses(ask_meanwhile):
            engine.declare(declare("acme", purge="once"))
        engine.rest()
        assert engine.cached_tokens(again[0]) == 0
        assert engine.worker.loaded == 0

    def test_a_new_salt_key_leaves_nothing_behind(self, engine):
        engine = engine(20, 60, 60)
        engine.declare(declare("acme"))
        engine.stored("acme", 8)
        engine.scheduler.evict_cache()
        assert (engine.held("acme"), engine.held("acme", engine.disk.tier)) == (0, 0)


class TestOthersGoOn:
    def test_a_slow_load_stops_no_other_request(self, engine):
        engine = engine(40, 60)
        engine.declare(declare("acme"), declare("burst"))
        request = engine.loading("burst", engine.stored("burst", 8))
        for _ in range(5):
            engine.send("acme", prompt(4), max_tokens=3)
        for _ in range(8):
            engine.step()
        assert [outcome for name, outcome in engine.finished.items() if name.startswith("acme")] == ["length"] * 5
        assert request.status == LOADING

    def test_others_of_its_zone_go_on_too(self, engine):
        engine = engine(40, 60)
        engine.declare(declare("acme"))
        engine.loading("acme", engine.stored("acme", 8))
        other = engine.send("acme", prompt(4))
        engine.step()
        engine.step()
        assert other.is_finished()

    def test_a_load_that_has_landed_goes_on_though_its_zone_is_at_a_lowered_limit(self, engine):
        engine = engine(40, 60)
        engine.declare(declare("acme"), declare("burst"))
        request = engine.loading("acme", engine.stored("acme", 8) + prompt(4))
        engine.declare(declare("acme", limit=2), declare("burst"))
        engine.land()
        other = engine.send("burst", prompt(4))
        engine.run()
        assert request.is_finished()
        assert other.is_finished()

    def test_a_lookup_that_takes_its_time_stops_no_other_request(self, engine):
        engine = engine(40, 10, 100)
        engine.declare(declare("acme"), declare("burst"))
        tokens = engine.stored("burst", 8)
        engine.stored("burst", 10)
        engine.disk.hold()
        waits = engine.send("burst", tokens)
        other, third = engine.send("acme", prompt(4)), engine.send("burst", prompt(4))
        engine.step()
        engine.step()
        assert waits.status == RequestStatus.WAITING
        assert other.is_finished()
        assert third.is_finished(), "of the same zone, too"
        engine.disk.release()
        engine.run()
        assert engine.cached_tokens(waits) == 8 * BLOCK_TOKENS


class TestSeatsAndBlocks:
    def test_loads_have_seats(self, engine):
        engine = engine(100, 200, max_num_seqs=3)
        engine.declare(declare("acme"))
        prompts = [engine.stored("acme", 4) for _ in range(6)]
        engine.worker.slowest = engine.worker.fastest = 10_000
        requests = [engine.send("acme", tokens) for tokens in prompts]
        for _ in range(5):
            engine.step()
        assert [request.status for request in requests].count(LOADING) == 3
        engine.worker.fastest = engine.worker.slowest = 0
        engine.land()
        engine.run()
        assert all(request.is_finished() for request in requests)

    def test_a_seat_limit_counts_loads(self, engine):
        engine = engine(100, 200, max_num_seqs=8)
        engine.declare(declare("acme", seats={"limit": 2}), declare("burst"))
        prompts = [engine.stored("acme", 4) for _ in range(5)]
        engine.worker.slowest = engine.worker.fastest = 10_000
        requests = [engine.send("acme", tokens) for tokens in prompts]
        for _ in range(5):
            engine.step()
        assert [request.status for request in requests].count(LOADING) == 2

    def test_a_load_holds_the_blocks_of_its_whole_prompt(self, engine):
        engine = engine(40, 60, max_num_batched_tokens=64)
        engine.declare(declare("acme"))
        request = engine.loading("acme", engine.stored("acme", 8) + prompt(10))
        assert engine.blocks_of(request) == 19
        engine.send("acme", prompt(20))
        engine.land()
        engine.run()
        assert request.num_preemptions == 0

    def test_a_load_waits_until_its_zone_may_have_the_blocks(self, engine):
        engine = engine(40, 60)
        engine.declare(declare("acme", limit=12), declare("burst"))
        first, second = engine.stored("acme", 8), engine.stored("acme", 8)
        loading = engine.loading("acme", first)
        waits = engine.send("acme", second)
        other = engine.send("burst", prompt(4))
        engine.step()
        engine.step()
        assert (loading.status, waits.status) == (LOADING, RequestStatus.WAITING)
        assert other.is_finished()
        engine.land()
        engine.worker.fastest = engine.worker.slowest = 0
        engine.run()
        assert waits.is_finished()

    def test_prompts_of_others_under_way_do_not_hold_back_a_load(self, engine):
        engine = engine(40, 60, max_num_batched_tokens=32)
        engine.declare(declare("acme", reserved=20), declare("burst"))
        tokens = engine.stored("acme", 8)
        engine.send("burst", prompt(18))
        engine.step()
        # The rest of the other's prompt and this one's blocks are more than there are: stock would wait.
        engine.send("burst", prompt(12))
        engine.loading("acme", tokens + prompt(9))

    def test_an_entitled_zone_waits_for_no_more_than_a_copy(self, engine):
        engine = engine(20, 60)
        engine.declare(declare("gold", reserved=16, after=0), declare("burst"))
        tokens = engine.stored("burst", 12)
        loading = engine.loading("burst", tokens, max_tokens=100)
        gold = engine.send("gold", prompt(12), max_tokens=2)
        for _ in range(5):
            engine.step()
        assert gold.status == RequestStatus.WAITING, "a load can't be preempted"
        engine.land()
        for _ in range(3):
            engine.step()
        assert gold.num_computed_tokens > 0
        assert loading.num_preemptions == 1
        engine.worker.fastest = engine.worker.slowest = 0
        engine.run()

    def test_a_prompt_that_waits_for_the_end_of_a_load_takes_no_share_of_a_step(self, engine):
        engine = engine(60, 60, max_num_batched_tokens=64)
        engine.declare(declare("acme", limit=20, weight=9), declare("burst"))
        engine.loading("acme", engine.stored("acme", 5))
        held_back = engine.send("acme", prompt(9))
        engine.step()
        engine.declare(declare("acme", limit=10, weight=9), declare("burst"))
        burst = engine.send("burst", prompt(30))
        engine.step()
        for _ in range(4):
            before = burst.num_computed_tokens
            engine.step()
            assert burst.num_computed_tokens == before + 64
        assert held_back.num_computed_tokens == 64, "its zone has no other block"
        engine.land()
        engine.run()
        assert held_back.is_finished()

    def test_a_load_has_the_place_of_its_adapter(self, engine):
        engine = engine(20, 60)
        engine.declare(
            declare("gold", reserved=12, after=0), declare("calm", reserved=6, after=0), declare("burst", after=0)
        )
        tokens = engine.stored("burst", 12)
        engine.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
        loading = engine.loading("burst", tokens, max_tokens=2)
        loading.lora_request = adapter(2)
        calm = engine.send("calm", prompt(1), max_tokens=78)
        calm.lora_request = adapter(1)
        engine.step()
        assert (calm.status, loading.status) == (RequestStatus.WAITING, LOADING)
        report = make_report(engine.served, ConfigStatus(), pod="p", started_unix_time=0.0)
        assert report.adapters == (AdapterReport(adapter="adapter-2", tenants=("burst",)),)
        gold = engine.send("gold", prompt(11), max_tokens=2)
        engine.land()
        engine.worker.fastest = engine.worker.slowest = 0
        for _ in range(8):
            engine.step()
        assert gold.is_finished(), "who is entitled waits for no more than the copy, and not until calm's request ends"
        engine.run()

    def test_a_load_has_the_place_of_its_adapter_also_if_the_tier_has_answered_in_the_midst_of_the_step(self, engine):
        engine = engine(20, 60)
        engine.declare(declare("calm", weight=1000), declare("gold"))
        engine.ask("gold", prompt(6))
        tokens = engine.stored("calm", 6)
        engine.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
        calm = engine.send("calm", tokens, max_tokens=2)
        calm.lora_request = adapter(1)
        gold = engine.send("gold", tokens, max_tokens=2, adapter=adapter(2))
        # Before the step, the tier was about to have what calm's request asked for.
        engine.scheduler._engine._is_looking_up = lambda request: request is calm
        engine.worker.slowest = engine.worker.fastest = 10_000
        engine.step()
        assert (calm.status, gold.status) == (LOADING, RequestStatus.WAITING)
        engine.land()

    def test_no_request_takes_the_place_of_an_adapter_whose_request_was_skipped_in_a_step(self, engine):
        """vLLM finds more adapters in a later step than there is room for, and the engine dies."""
        engine = engine(30, 60)
        engine.declare(declare("acme", limit=10), declare("burst"))
        tokens = engine.stored("acme", 6)
        engine.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
        engine.loading("acme", tokens, max_tokens=2)
        held_back = engine.send("acme", prompt(2), max_tokens=5 * BLOCK_TOKENS)
        held_back.lora_request = adapter(1)
        for _ in range(30):
            engine.step()
        assert held_back.num_output_tokens == BLOCK_TOKENS, (
            "its zone has no other block as long as the load is under way"
        )
        other = engine.send("burst", prompt(2), max_tokens=2)
        other.lora_request = adapter(2)
        engine.step()
        assert other.status == RequestStatus.WAITING
        engine.land()
        engine.worker.fastest = engine.worker.slowest = 0
        engine.run()

    def test_no_zone_gives_up_a_seat_for_a_request_whose_grammar_is_there_and_whose_adapter_has_no_place(self, engine):
        engine = engine(30, 60, max_num_seqs=2)
        engine.declare(declare("acme"), declare("gold", reserved=15))
        engine.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
        running = [engine.send("acme", prompt(1), max_tokens=10, adapter=adapter(1)) for _ in range(2)]
        engine.step()
        compiled = Future()
        compiled.set_result(AnyToken())
        gold = engine.send("gold", prompt(1), max_tokens=2, adapter=adapter(2), grammar=compiled)
        for _ in range(3):
            engine.step()
        assert [each.num_preemptions for each in running] == [0, 0]
        engine.run()
        assert gold.is_finished()

    def test_requests_with_other_adapters_than_those_that_load_all_end(self, engine):
        engine = engine(10, 60)
        engine.declare(declare("acme", reserved=8, limit=10), declare("burst"))
        for loads in ("acme", "burst"):
            engine.scheduler.lora_config = None
            tokens = engine.stored(loads, 6)
            engine.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
            engine.loading(loads, tokens, max_tokens=2).lora_request = adapter(2)
            engine.send("acme", prompt(2), max_tokens=5 * BLOCK_TOKENS).lora_request = adapter(1)
            engine.step()
            engine.land()
            engine.worker.fastest = engine.worker.slowest = 0
            engine.run()

    def test_a_window_takes_what_its_next_step_needs(self, engine):
        engine = engine(40, 60, window=64, max_num_batched_tokens=64)
        engine.declare(declare("acme"), declare("burst"))
        request = engine.loading("acme", engine.stored("acme", 8) + prompt(20))
        other = engine.send("burst", prompt(10))
        engine.land()
        engine.run()
        assert request.is_finished()
        assert other.is_finished()


class TestAccounts:
    def test_what_was_loaded_is_not_charged(self, engine):
        engine = engine(40, 60)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        counters = engine.zone("acme").counters
        before, charged = counters.computed_tokens, engine.zone("acme").account.service
        request = engine.loading("acme", tokens, max_tokens=1)
        assert counters.computed_tokens == before
        assert engine.zone("acme").account.service == charged, "before the load has ended nothing is charged"
        engine.land()
        engine.run()
        assert counters.computed_tokens - before == request.num_prompt_tokens - 8 * BLOCK_TOKENS + 1

    def test_who_goes_away_while_loading_is_charged_nothing(self, engine):
        engine = engine(40, 60)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 8)
        before = engine.zone("acme").account.service
        request = engine.loading("acme", tokens)
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        assert engine.zone("acme").in_use == 9, "the copy still writes there"
        assert engine.scheduler.get_num_unfinished_requests() == 0
        engine.land()
        engine.rest()
        engine.check()
        assert engine.zone("acme").in_use == 0
        assert engine.zone("acme").account.service == before

    def test_the_seat_of_who_goes_away_while_loading_is_free_at_once(self, engine):
        engine = engine(40, 60, max_num_seqs=1)
        engine.declare(declare("acme"), declare("burst"))
        request = engine.loading("acme", engine.stored("acme", 8))
        other = engine.send("burst", prompt(2))
        engine.step()
        assert other.status == RequestStatus.WAITING
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        engine.step()
        assert other.num_computed_tokens > 0


class TestNoLivelock:
    def test_a_prompt_longer_than_memory_is_loaded_as_far_as_that_goes(self, engine):
        engine = engine(40, 30, 100)
        engine.declare(declare("acme"))
        tokens = prompt(16)
        engine.ask("acme", tokens)
        engine.evict("acme")
        assert engine.held("acme", engine.disk.tier) == 16
        engine.declare(declare("acme", tiers=(TierShare(tier="cpu", limit=6 * CHUNK_BYTES),)))
        request = engine.send("acme", tokens)
        engine.run(max_steps=30)
        assert engine.cached_tokens(request) == 6 * BLOCK_TOKENS

    def test_prompts_that_drive_each_other_out_of_memory_all_end(self, engine):
        engine = engine(60, 8, 200)
        engine.declare(declare("acme"))
        prompts = [engine.stored("acme", 7) for _ in range(4)]
        requests = [engine.send("acme", tokens) for tokens in prompts]
        engine.run(max_steps=60)
        assert all(request.is_finished() for request in requests)

    def test_a_disk_that_fails_costs_hits_and_no_request(self, engine):
        engine = engine(40, 8, 200, failing=True)
        engine.declare(declare("acme"), declare("burst"))
        prompts = [engine.stored(tenant, 7) for tenant in ("acme", "burst") * 4]
        requests = [engine.send(tenant, tokens) for tenant, tokens in zip(("acme", "burst") * 4, prompts, strict=True)]
        engine.run(max_steps=200)
        assert all(request.get_finished_reason().name == "LENGTH" for request in requests)

    @pytest.mark.parametrize("files", [None, 12], ids=["memory alone", "memory and a disk"])
    def test_who_is_preempted_and_admitted_again_while_the_tiers_are_full_ends_with_its_whole_answer(
        self, engine, files
    ):
        """The owner of the reservation comes and goes, and each time the others give up their blocks to it."""
        engine = engine(24, 6, files, max_num_batched_tokens=128)
        engine.declare(declare("gold", reserved=16, after=0, grace=0), declare("burst", after=0))
        engine.worker.slowest = 3
        for number in range(3):
            engine.ask("burst", prompt(6, seed=900 + number))
        assert engine.held("burst") == 6, "memory is full"
        borrowers = [engine.send("burst", prompt(4, seed=number), max_tokens=80) for number in range(3)]
        owners = []
        for number in range(4):
            for _ in range(12):
                engine.step()
                engine.check()
            owners.append(engine.send("gold", prompt(12, seed=100 + number), max_tokens=4))
        engine.run(max_steps=400)
        engine.rest()
        engine.check()
        assert sum(each.num_preemptions for each in borrowers) >= 3
        assert {each.num_output_tokens for each in borrowers} == {80}
        assert {each.num_output_tokens for each in owners} == {4}
        assert (engine.zone("gold").in_use, engine.zone("burst").in_use) == (0, 0)
        assert engine.memory.ledger.held_blocks <= 6


class TestWhatMayNotBeKept:
    def test_nothing_is_kept_of_a_request_that_was_caught_with_a_foreign_block(self, engine):
        engine = engine(40, 60, 60)
        engine.declare(declare("acme"), declare("burst"))
        engine.ask("burst", prompt(4))
        tokens = prompt(6)
        request = engine.send("acme", tokens, max_tokens=40)
        engine.step()
        engine.step()
        assert engine.held("acme")
        table = engine.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
        (foreign, *_) = engine.zone("burst").cached
        own, table[request.request_id][0] = table[request.request_id][0], engine.scheduler.block_pool.blocks[foreign]
        engine.worker.checks = False
        engine.step()
        engine.step()
        assert request.get_finished_reason().name == "ERROR"
        engine.rest()
        assert engine.held("acme") == 0, "neither what was stored nor what was being stored"
        assert engine.held("acme", engine.disk.tier) == 0
        own.ref_cnt -= 1

    def test_blocks_that_a_preempted_request_had_are_not_stored_in_its_name(self, engine):
        engine = engine(20, 60)
        engine.declare(declare("acme", offload="All"), declare("burst"))
        # It ends with output that was in flight when it was preempted: vLLM stores its last blocks then.
        request = engine.send("acme", prompt(4, extra=BLOCK_TOKENS - 1), max_tokens=200)
        for _ in range(4):
            engine.step()
        held = engine.held("acme")
        engine.scheduler.running.remove(request)
        engine.scheduler._preempt_request(request, 0.0)
        request.max_tokens = request.num_output_tokens
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_STOPPED)
        other = engine.ask("burst", prompt(12))
        assert other.is_finished()
        assert engine.held("acme") <= held


class TestDeferredFrees:
    def test_no_request_yields_for_blocks_that_are_coming(self, engine):
        engine = engine(24, 60, async_scheduling=True)
        assert engine.scheduler.defer_block_free
        engine.declare(declare("gold", reserved=8, after=0), declare("burst"))
        running = [engine.send("burst", prompt(5, extra=3), max_tokens=40) for _ in range(4)]
        flights = [engine.schedule()]
        for _ in range(4):
            flights.append(engine.schedule())
            engine.update(*flights.pop(0))
        gold = engine.send("gold", prompt(5), max_tokens=2)
        for _ in range(4):
            flights.append(engine.schedule())
            engine.update(*flights.pop(0))
            engine.check()
        assert gold.num_computed_tokens > 0
        assert sum(request.num_preemptions for request in running) == 1
        engine.update(*flights.pop(0))
        engine.run()

    def test_what_is_coming_is_not_kept_by_turns_by_those_that_share_it(self, engine):
        engine = engine(24, 60, async_scheduling=True)
        engine.declare(declare("gold", reserved=12, after=0), declare("burst"))
        running = [engine.send("burst", prompt(14, seed=1), max_tokens=60) for _ in range(2)]
        for _ in range(4):
            engine.step()
        in_flight = engine.schedule()
        gold = engine.send("gold", prompt(11), max_tokens=2)
        engine.send("burst", prompt(14, seed=1), max_tokens=60)
        steps = [engine.schedule() for _ in range(2)]
        assert not any(output.num_scheduled_tokens for output, _ in steps), "they wait for the one in flight"
        for step in (in_flight, *steps):
            engine.update(*step)
        engine.step()
        assert gold.num_computed_tokens > 0
        assert [request.num_preemptions for request in running] == [1, 1]
        engine.run()


class TestZonesChange:
    def test_loads_of_before_zones_stop_no_request_when_zones_come(self, engine):
        engine = engine(20, 60)
        tokens = prompt(8)
        engine.ask(None, tokens)
        engine.scheduler.kv_cache_manager.reset_prefix_cache()
        request = engine.loading(None, tokens + prompt(8))
        engine.declare(declare("gold", reserved=10, lendable="0%"))
        assert request.zone.wait_reason == "load"
        engine.land()
        engine.worker.fastest = engine.worker.slowest = 0
        gold = engine.send("gold", prompt(4))
        engine.step()
        engine.step()
        engine.step()
        assert gold.is_finished()
        engine.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
        engine.rest()

    def test_a_zone_that_goes_while_it_loads(self, engine):
        engine = engine(40, 60, 60)
        engine.declare(declare("acme"), declare("burst"))
        request = engine.loading("acme", engine.stored("acme", 8))
        engine.declare(declare("burst"))
        engine.land()
        engine.run()
        engine.rest()
        assert request.is_finished()
        assert "acme" not in engine.memory.ledger.zones
        assert engine.memory.ledger.held_blocks == 0

    def test_a_share_that_shrinks_while_it_is_used(self, engine):
        engine = engine(40, 60, 60)
        engine.declare(declare("acme"))
        tokens = engine.stored("acme", 20)
        engine.loading("acme", tokens)
        for limit in (4 * CHUNK_BYTES, 0):
            shares = [TierShare(tier=tier, limit=limit or "0%") for tier in ("cpu", "disk")]
            engine.declare(declare("acme", tiers=shares))
        engine.land()
        engine.worker.fastest = engine.worker.slowest = 0
        engine.run()
        engine.rest()
        assert engine.held("acme") == 0
        assert engine.held("acme", engine.disk.tier) == 0
