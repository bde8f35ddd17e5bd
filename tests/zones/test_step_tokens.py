"""How the tokens of a step are divided among zones."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenantzone_runtime.zones.model.zone import SeatQuota
from tenantzone_runtime.zones.tokens.deficits import BOUND, CHUNK
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine
from tests.zones.test_latency_budget import token_time
from tests.zones.test_preemptor import LoadingEngine


@pytest.fixture
def core():
    return Core(1000)


def computed(engine):
    """Tokens that the last step computed, by tenant."""
    by_tenant = {}
    for work, tokens in engine.computed.items():
        by_tenant[work.zone.spec.tenant] = by_tenant.get(work.zone.spec.tenant, 0) + tokens
    return by_tenant


def test_a_long_prompt_takes_no_more_than_its_zones_share_while_another_zone_has_work(core):
    flood, acme = core.zone("flood"), core.zone("acme", weight=3)
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.wait(acme, 10, tokens=4000)

    engine.step()
    assert computed(engine) == {"flood": 250, "acme": 750}
    engine.step()
    assert computed(engine) == {"flood": 250, "acme": 750}, "now that both run, too"


def test_alone_it_has_the_whole_step(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 1000}
    work = engine.wait(acme, 10, tokens=100)
    engine.step()
    assert computed(engine) == {"flood": 900, "acme": 100}
    engine.end(work)
    engine.step()
    assert computed(engine) == {"flood": 1000}
    assert (flood.counters.withheld_tokens, acme.counters.withheld_tokens) == (100, 0)


def test_decodes_come_first_wherever_they_stand(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=100)
    engine.run(flood, 10, tokens=5000)
    engine.run(acme, 10, tokens=5000)
    decodes = [engine.run(zone, 1) for zone in (flood, acme, acme, acme)]
    engine.step()
    assert all(engine.computed[work] == 1 for work in decodes)
    assert computed(engine) == {"flood": 49, "acme": 51}


def test_what_a_zone_was_given_and_could_not_use_is_there_for_who_waits(core):
    flood, cached, acme = core.zone("flood"), core.zone("cached"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=900)
    engine.run(flood, 10, tokens=5000)
    # Most of its prompt turns out to be cached once it is admitted.
    front = engine.wait(cached, 1, tokens=3000)
    engine.wait(acme, 1, tokens=3000)
    tokens_left = engine.tokens_left

    def left_once_admitted(work):
        return 5 if work is front and front not in engine.waiting else tokens_left(work)

    engine.tokens_left = left_once_admitted
    engine.step()
    assert computed(engine) == {"flood": 300, "cached": 5, "acme": 300}


def test_a_prompt_is_not_begun_with_less_than_a_chunk_and_saves_up_for_it(core):
    flood, acme = core.zone("flood", weight=100), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=100_000)
    engine.wait(acme, 1, tokens=500)
    steps = []
    while "acme" not in computed(engine):
        engine.step()
        assert acme.wait_reason == (None if "acme" in computed(engine) else "tokens")
        steps.append(computed(engine))
    assert len(steps) == -(-CHUNK * 101 // 1000)
    assert steps[-1]["acme"] >= CHUNK
    assert all(sum(step.values()) == 1000 for step in steps)


def test_where_nothing_else_can_be_computed_a_short_share_is_enough(core):
    """A prompt can't begin with such a small share, so a waiting request gets it: the step is not left empty."""
    first, second = core.zone("first"), core.zone("second")
    engine = SmallEngine(core, step_tokens=CHUNK)
    engine.wait(first, 1, tokens=500)
    engine.wait(second, 1, tokens=500)
    engine.step()
    assert sum(computed(engine).values()) == CHUNK


def test_all_waiting_zones_begin_in_one_step_if_there_is_enough_for_all(core):
    zones = [core.zone(f"tenant-{number}") for number in range(8)]
    engine = SmallEngine(core, step_tokens=1600)
    for zone in zones:
        engine.wait(zone, 1, tokens=5000)
    engine.step()
    assert list(computed(engine).values()) == [200] * 8


def serve(engine, steps):
    """Makes `steps` steps, in which requests end with their prompts. Returns the tokens computed, by tenant."""
    service = {}
    for _ in range(steps):
        engine.step()
        for tenant, tokens in computed(engine).items():
            service[tenant] = service.get(tenant, 0) + tokens
        for work in [work for work in engine.running if work.tokens and not engine.is_in_prompt(work)]:
            engine.end(work)
    return service


def test_many_short_prompts_are_worth_as_much_as_a_long_one():
    core = Core(10_000)
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, seats=10_000, step_tokens=8192)
    engine.run(flood, 10, tokens=10**6)
    for _ in range(900):
        engine.wait(acme, 1, tokens=100)
    service = serve(engine, 20)
    assert sum(service.values()) == 20 * 8192
    assert abs(service["flood"] - service["acme"]) <= BOUND


def test_short_prompts_of_a_zone_that_was_served_less_do_not_fill_the_step():
    """They are next by past service, and the step is shared nevertheless."""
    core = Core(10_000)
    ahead, behind = core.zone("ahead"), core.zone("behind")
    ahead.account.charge(1e6)
    engine = SmallEngine(core, seats=10_000, step_tokens=1000)
    for _ in range(100):
        engine.wait(behind, 1, tokens=100)
        engine.wait(ahead, 1, tokens=550)
    service = serve(engine, 10)
    assert abs(service["ahead"] - service["behind"]) <= BOUND


@settings(max_examples=60)
@given(
    step_tokens=st.sampled_from([7, 24, 64, 200, 512, 1000, 8192]),
    zones=st.lists(
        st.tuples(st.sampled_from([1, 1, 2, 3, 7]), st.sampled_from([10, 63, 65, 130, 500, 5000])),
        min_size=2,
        max_size=5,
    ),
    generating=st.integers(0, 5),
    seed=st.integers(0, 2**32),
)
def test_zones_that_always_have_work_stay_level_and_fill_each_step(step_tokens, zones, generating, seed):
    """With any weights, prompts of any length, running or waiting, and any past service."""
    core, number = Core(100_000), random.Random(seed)
    engine = SmallEngine(core, seats=100_000, step_tokens=step_tokens)
    busy = core.zone("busy")
    for _ in range(generating):
        engine.run(busy, 1)
    lengths = {core.zone(f"tenant-{index}", weight=weight): length for index, (weight, length) in enumerate(zones)}
    for zone, length in lengths.items():
        zone.account.charge(number.choice([0.0, 1000.0, 1e6]))
        if number.random() < 0.5:
            engine.run(zone, 1, tokens=length)
    service = dict.fromkeys(lengths, 0.0)
    for _ in range(40):
        for zone, length in lengths.items():
            waiting = sum(work.tokens for work in engine.queues.get(zone, ()))
            for _ in range(-(-(step_tokens - waiting) // length)):
                engine.wait(zone, 1, tokens=length)
        engine.step()
        assert sum(engine.computed.values()) == step_tokens
        for work, tokens in engine.computed.items():
            if work.zone is not busy:
                service[work.zone] += tokens / work.zone.spec.weight
        assert max(service.values()) - min(service.values()) <= BOUND
        for work in [work for work in engine.running if work.tokens and not engine.is_in_prompt(work)]:
            engine.end(work)


@pytest.mark.parametrize("bound", ["seats", "blocks"])
def test_prompts_that_have_no_seat_or_no_blocks_take_nothing_from_others(core, bound):
    flood = core.zone("flood")
    acme = core.zone("acme", **({"seats": SeatQuota(limit=1)} if bound == "seats" else {"limit": 1}))
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=10**6)
    for _ in range(20):
        engine.wait(acme, 1, tokens=100)
    engine.step()
    assert computed(engine) == {"flood": 900, "acme": 100}


def test_who_stands_behind_a_request_that_waits_for_something_else_has_the_zones_share(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=10**6)
    engine.wait(acme, 1, tokens=300, waits_for_else=True)
    engine.wait(acme, 1, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 500, "acme": 500}


def test_who_has_its_blocks_of_what_others_merely_cache_has_a_share():
    core = Core(100)
    flood, beta, acme = core.zone("flood"), core.zone("beta"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=900)
    for zone in (flood, beta):
        engine.run(zone, 10, tokens=10**6)
    core.hold(flood, cached=80)
    engine.wait(acme, 5, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 300, "beta": 300, "acme": 300}
    assert len(flood.cached) == 75


@pytest.mark.parametrize("generating", [0, 200, 250, 255])
def test_prompts_are_begun_with_what_a_step_full_of_decodes_leaves(core, generating):
    busy, zones = core.zone("busy"), [core.zone(name) for name in ("acme", "beta")]
    engine = SmallEngine(core, seats=1000, step_tokens=256)
    for _ in range(generating):
        engine.run(busy, 1)
    works = [engine.wait(zone, 1, tokens=50) for zone in zones]
    serve(engine, 101)
    assert not set(works) & {*engine.running, *engine.waiting}


def test_an_engine_without_chunks_shares_nothing(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core)
    engine.run(flood, 10, tokens=5000)
    work = engine.wait(acme, 10, tokens=5000)
    assert engine.step() == ([], [work])
    assert engine.arbiter.tokens_for(work, 5000) == 5000


def test_no_seat_no_share(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, seats=1, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.wait(acme, 10, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 1000}


def test_no_blocks_no_share(core):
    flood, acme = core.zone("flood"), core.zone("acme", limit=5)
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.wait(acme, 10, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 1000}


def test_a_request_that_waits_for_something_else_takes_no_share_and_is_looked_at(core):
    flood, acme, beta = core.zone("flood"), core.zone("acme"), core.zone("beta")
    engine = SmallEngine(core, step_tokens=900)
    engine.run(flood, 10, tokens=5000)
    grammar = engine.wait(acme, 1, tokens=5000, waits_for_else=True)
    engine.wait(beta, 1, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 450, "beta": 450}
    assert grammar in engine.looked_at


def test_a_pause_shares_nothing_and_what_runs_ends(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=3000)
    engine.wait(acme, 10, tokens=5000)
    engine.is_open = False
    engine.arbiter.pause()
    for _ in range(3):
        engine.step()
        assert computed(engine) == {"flood": 1000}


def test_for_one_free_seat_a_step_is_not_shared_among_all_who_wait(core):
    zones = [core.zone(f"tenant-{number}") for number in range(3)]
    engine = SmallEngine(core, seats=1, step_tokens=900)
    for zone in zones:
        engine.wait(zone, 1, tokens=5000)
    engine.step()
    assert sorted(computed(engine).values()) == [900]


def test_what_a_request_can_not_use_that_finds_no_blocks_is_there_for_who_waits(core):
    flood, acme = core.zone("flood", limit=10), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    running = engine.run(flood, 10, tokens=5000)
    waiting = [engine.wait(acme, 1, tokens=500) for _ in range(2)]
    arbiter = engine.arbiter
    arbiter.begin_step()
    assert arbiter.tokens_for(running, 1000) == 500
    assert not arbiter.may_continue(running, 1)
    for work in waiting:
        assert arbiter.admit_next() is work
        assert arbiter.tokens_for(work, 500) == 500
        engine.leave(work)
        engine.running.append(work)


@pytest.mark.parametrize("step_tokens", [12, 64, 1000])
@pytest.mark.parametrize("decodes", [0, 3])
def test_a_prompt_that_has_no_room_in_the_encoder_takes_no_share_from_who_may_have_it(core, step_tokens, decodes):
    flood, acme = core.zone("flood", weight=100), core.zone("acme")
    engine = SmallEngine(core, step_tokens=step_tokens)
    engine.run(flood, 1, tokens=5000, has_no_room=True)
    prompt = engine.run(acme, 1, tokens=10**5)
    for _ in range(decodes):
        engine.run(flood, 1)
    for _ in range(5):
        engine.step()
        assert engine.computed[prompt] == step_tokens - decodes


@pytest.mark.parametrize("comes_first", [False, True])
def test_where_who_has_the_tokens_can_not_go_on_no_two_steps_in_a_row_are_empty(core, comes_first):
    flood, acme = core.zone("flood", weight=100), core.zone("acme")
    engine = SmallEngine(core, step_tokens=64)
    prompt = engine.run(acme, 1, tokens=5000)
    engine.run(flood, 1, tokens=5000, stands_still=True)
    if comes_first:
        engine.running.reverse()
    was_empty = False
    while prompt.computed < prompt.tokens:
        engine.step()
        assert engine.computed or not was_empty
        was_empty = not engine.computed


def test_a_step_whose_tokens_went_to_who_finds_no_blocks_is_empty_and_the_next_is_not_shared(core):
    flood, acme = core.zone("flood", limit=10), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    running = engine.run(flood, 10, tokens=5000)
    engine.run(acme, 10, tokens=5000)
    arbiter = engine.arbiter
    arbiter.begin_step()
    assert arbiter.tokens_for(running, 1000) == 500
    assert not arbiter.may_continue(running, 1)
    arbiter.end_step()
    arbiter.begin_step()
    assert not arbiter.shares_tokens
    arbiter.end_step()
    arbiter.begin_step()
    assert arbiter.shares_tokens


@pytest.mark.parametrize("weight", [1, 3])
def test_where_prompts_go_on_by_blocks_only_shares_are_kept_over_time(core, weight):
    """A block is more than half of a step: the zones get one each in turn, and no step is left empty."""
    flood, acme = core.zone("flood"), core.zone("acme", weight=weight)
    engine = SmallEngine(core, step_tokens=1000, chunk_tokens=528)
    engine.run(flood, 10, tokens=100_000)
    engine.wait(acme, 10, tokens=100_000)
    service = {"flood": 0, "acme": 0}
    for _ in range(40):
        engine.step()
        assert list(computed(engine).values()) == [528]
        for tenant, tokens in computed(engine).items():
            service[tenant] += tokens
    assert abs(service["acme"] / weight - service["flood"]) <= 2 * (528 + 1)


@pytest.mark.parametrize("runs", [True, False])
def test_rests_that_are_too_small_for_each_zones_next_block_are_computed_where_they_make_one_together(core, runs):
    acme, burst = core.zone("acme", weight=2), core.zone("burst", weight=3)
    engine = SmallEngine(core, step_tokens=200, chunk_tokens=32)
    for zone in (acme, burst):
        (engine.run if runs else engine.wait)(zone, 1, tokens=100_000)
    service = Counter()
    for _ in range(50):
        engine.step()
        service.update(computed(engine))
        assert sum(computed(engine).values()) == 192, "all blocks that a step has tokens for"
        assert abs(service["acme"] / 2 - service["burst"] / 3) <= BOUND


def test_a_prompt_saves_up_for_a_block(core):
    flood, acme = core.zone("flood", weight=100), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1200, chunk_tokens=500)
    engine.run(flood, 10, tokens=1_000_000)
    engine.wait(acme, 1, tokens=5000)
    steps = []
    while "acme" not in computed(engine):
        engine.step()
        steps.append(computed(engine))
        assert sum(steps[-1].values()) == 1000
    assert steps[-1]["acme"] == 500
    assert 1 < len(steps) <= -(-500 * 101 // 1000) + 1, "as long as its part by weight of what is computed takes"


@given(
    chunk=st.sampled_from([1, 16, 100, 528]),
    spare=st.integers(0, 1000),
    sent=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 1500), st.integers(0, 6), st.sampled_from([1, 3])), max_size=8
    ),
)
@settings(deadline=None)
def test_prompts_that_go_on_by_blocks_all_end_and_no_step_is_empty(chunk, spare, sent):
    core = Core(1000)
    zones = [core.zone(f"tenant-{number}", weight=1 + number) for number in range(4)]
    engine = SmallEngine(core, step_tokens=max(chunk, 64) + spare, chunk_tokens=chunk, seats=3)
    for number, tokens, steps, count in sent:
        for _ in range(count):
            engine.wait(zones[number], 1, tokens=tokens)
        serve(engine, steps)
    left = sum(work.tokens - work.computed for work in [*engine.running, *engine.waiting])
    while engine.running or engine.waiting:
        serve(engine, 1)
        now = sum(work.tokens - work.computed for work in [*engine.running, *engine.waiting])
        assert now < left
        left = now


class AsksForTokensFirst(LoadingEngine):
    """As vLLM does: a request without tokens in a step is not asked for the blocks that it needs."""

    def _go_on(self, work):
        has_tokens = not self.is_in_prompt(work) or self.arbiter.share_of(work, 1)
        return not has_tokens or super()._go_on(work)


def with_another_that_waits_for_a_load(core, engine, *, weight=9):
    """A prompt that gets no blocks until its zone's load has ended, and another tenant's. Returns the first."""
    acme, flood, calm = core.zone("acme", limit=10, weight=weight), core.zone("flood"), core.zone("calm")
    held_back = engine.run(acme, 4, tokens=50_000, asks=5, stands_still=True)
    engine.load(acme, 4)
    engine.run(calm, 1)
    engine.run(flood, 10, tokens=50_000)
    engine.step()
    return held_back


@pytest.mark.parametrize("engine_type", [LoadingEngine, AsksForTokensFirst])
@pytest.mark.parametrize("weight", [1, 9])
def test_a_prompt_whose_blocks_wait_for_a_load_takes_no_share_from_who_can_go_on(core, engine_type, weight):
    """That is known before the step. Otherwise its zone would have all but a tenth of every other step, in vain."""
    engine = engine_type(core, step_tokens=1001)
    held_back = with_another_that_waits_for_a_load(core, engine, weight=weight)
    for _ in range(8):
        engine.step()
        assert computed(engine) == {"calm": 1, "flood": 1000}
    engine.land()
    held_back.stands_still = False
    engine.step()
    assert computed(engine) == {"calm": 1, "acme": 1000 * weight // (weight + 1), "flood": 1000 // (weight + 1)}


def test_a_prompt_that_lacks_blocks_for_all_of_its_next_part_has_a_share_for_what_it_has_blocks_for(core):
    class EngineWithSomeBlocks(LoadingEngine):
        def tokens_within(self, work, blocks):
            return 100 if blocks < work.count else super().tokens_within(work, blocks)

    engine = EngineWithSomeBlocks(core, step_tokens=1001)
    held_back = with_another_that_waits_for_a_load(core, engine)
    engine.arbiter.begin_step()
    assert engine.arbiter.tokens_for(held_back, 1000) == 100
    assert engine.arbiter.tokens_for(engine.running[-1], 1000) == 900


@pytest.mark.parametrize("latency", [None, token_time(0.05)], ids=["no target", "target"])
def test_drafts_are_not_cut_where_no_prompt_is_there(core, latency):
    flood, acme = core.zone("flood"), core.zone("acme", latency=latency)
    engine = SmallEngine(core, step_tokens=64)
    engine.tokens_each = 8
    running = [engine.run(zone, 10) for zone in (flood, acme) for _ in range(4)]
    engine.arbiter.begin_step()
    assert [engine.arbiter.tokens_for(work, 8, lambda most: most) for work in running] == [8] * 8


def turning_down(engine, works, turned_down):
    """Makes a step in which the engine turns some requests down. Returns the tokens granted to each other prompt."""
    granted = {}
    engine.arbiter.begin_step()
    for work in works:
        tokens = engine.arbiter.tokens_for(work, engine.tokens_left(work) or 1)
        if work in turned_down:
            engine.arbiter.turned_down(work)
        elif engine.is_in_prompt(work):
            granted[work] = tokens
    engine.arbiter.admit_next()
    engine.arbiter.end_step()
    return granted


def one_behind(core, step_tokens, generating):
    """An engine with prompts of two zones behind a third zone that generates; the first is owed half of a step."""
    acme, flood, calm = core.zone("acme"), core.zone("flood"), core.zone("calm")
    engine = SmallEngine(core, seats=1000, step_tokens=step_tokens)
    prompts = behind, ahead = [engine.run(zone, 1, tokens=10_000) for zone in (acme, flood)]
    decodes = [engine.run(calm, 1) for _ in range(generating)]
    half = (step_tokens - generating) // 2
    assert turning_down(engine, [*prompts, *decodes], {behind}) == {ahead: half}
    return engine, behind, ahead, decodes


def test_zones_lose_no_tokens_that_requests_would_have_generated(core):
    engine, behind, ahead, decodes = one_behind(core, step_tokens=1000, generating=700)
    works = [behind, ahead, *decodes]
    assert turning_down(engine, works, {behind, *decodes}) == {ahead: 123}
    assert turning_down(engine, works, ()) == {behind: 170, ahead: 130}


def test_zones_lose_no_more_than_they_are_owed_in_a_step_that_computes_nothing(core):
    engine, behind, ahead, decodes = one_behind(core, step_tokens=101, generating=1)
    works = [behind, ahead, *decodes]
    assert turning_down(engine, works, set(works)) == {}
    turning_down(engine, works, ())  # It is not shared out: others may have what these zones wait for.
    assert turning_down(engine, works, ()) == {behind: 70, ahead: 30}


def test_a_zone_does_not_pay_for_tokens_that_others_left_if_the_engine_turns_its_request_down(core):
    acme, flood, calm = core.zone("acme"), core.zone("flood"), core.zone("calm")
    engine = SmallEngine(core, step_tokens=201, chunk_tokens=64)
    decode, one, first, second = (
        engine.run(calm, 1),
        *(engine.run(zone, 1, tokens=9000) for zone in (flood, acme, flood)),
    )
    engine.arbiter.begin_step()
    assert engine.arbiter.tokens_for(decode, 1) == 1
    assert engine.arbiter.tokens_for(one, 9000) == 100
    assert engine.arbiter.tokens_for(first, 9000, lambda most: 64) == 64
    assert engine.arbiter.tokens_for(second, 9000) == 36, "what the first could not use"
    engine.arbiter.turned_down(second)
    engine.arbiter.end_step()
    assert turning_down(engine, [decode, one, first, second], ()) == {one: 82, first: 118, second: 0}


def test_a_zone_whose_request_is_turned_down_owes_no_less_than_before(core):
    """It is charged for less than it finds: no zone pays back more than a chunk. It gets at most that back."""
    zones = [core.zone(tenant) for tenant in ("acme", "beta", "flood", "calm")]
    engine = SmallEngine(core, step_tokens=456, chunk_tokens=64)
    works = [engine.run(zone, 1, tokens=9000) for zone in zones]
    of_flood, of_calm = (engine.run(zone, 1, tokens=9000) for zone in zones[2:])
    engine.arbiter.begin_step()
    assert [engine.arbiter.tokens_for(work, 9000, lambda most: 64) for work in works[:2]] == [64, 64]
    assert [engine.arbiter.tokens_for(work, 114) for work in works[2:]] == [114, 114]
    assert engine.arbiter.tokens_for(of_flood, 9000) == 100, "what the first two could not use"
    engine.arbiter.turned_down(of_flood)
    assert engine.arbiter.tokens_for(of_calm, 9000) == 100
    engine.arbiter.end_step()
    assert list(turning_down(engine, works, ()).values()) == [178, 164, 114, 0]
