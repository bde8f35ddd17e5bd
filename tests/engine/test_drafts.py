"""Speculative decoding: slots for drafts are accounted for, and wrong drafts cost no zone anything."""

from collections import Counter, deque
from copy import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, with_drafts, with_flags
from tenantzone_contract.zone_config.config import ZoneConfig
from tests.engine.test_refused import refusal

METHODS = [("ngram", 3), ("draft_model", 1), ("eagle", 3), ("mtp", 2), ("eagle", 20)]
RIGHT, WRONG = (lambda most: most), (lambda most: 0)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=128)


@pytest.fixture(scope="module")
def new_engine(config):
    """Not the config itself: Hypothesis prints the arguments of a test, and can't print that."""
    return lambda method, drafts: engine(config, method, drafts=drafts)


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def engine(config, method, capacity=100, drafts=RIGHT, ahead=0) -> Driver:
    """``ahead``: steps scheduled before the one in the model ends."""
    config = with_flags(with_drafts(config, *method), async_scheduling=ahead > 0)
    driver = Driver(make_scheduler(config, capacity))
    driver.drafts = drafts
    return driver


def run(driver: Driver, ahead: int = 0):
    """Yields after each half of a step until nothing is left to do."""
    in_the_model, steps = deque(), 0
    while driver.scheduler.has_unfinished_requests() or in_the_model:
        steps += 1
        assert steps < 1000, "requests are left"
        if driver.scheduler.has_unfinished_requests():
            in_the_model.append(driver.schedule())
        driver.check()
        yield
        if len(in_the_model) > ahead or not driver.scheduler.has_unfinished_requests():
            output, result = in_the_model.popleft()
            # Wrong tokens are drafted all the same.
            driver.update(output, result)
            if not ahead:
                drafts, driver.drafts = driver.drafts, RIGHT
                driver.draft(output)
                driver.drafts = drafts
        driver.check()
        yield


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.shows("speculative decoding (`--speculative-config`)")
def test_a_zone_is_charged_for_the_tokens_that_it_got(config, method):
    charged, steps = {}, {}
    for drafts in (RIGHT, WRONG):
        driver = engine(config, method, drafts=drafts)
        driver.declare(zone("acme"))
        driver.send("acme", prompt(2, seed=1), max_tokens=50)
        steps[drafts] = sum(1 for _ in run(driver)) // 2
        acme = driver.zone("acme")
        charged[drafts] = acme.account.service, acme.counters.generation_tokens, acme.counters.computed_tokens
    assert charged[RIGHT] == charged[WRONG]
    assert charged[RIGHT][1] == 50
    assert steps[RIGHT] < steps[WRONG] == 50


@pytest.mark.parametrize("ahead", [0, 1], ids=["step by step", "asynchronous"])
@pytest.mark.parametrize("drafts", [RIGHT, WRONG], ids=["right", "wrong"])
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("tokens", [1, 20, 32, 33, 40, 60])
@pytest.mark.shows("speculative decoding (`--speculative-config`)")
def test_a_request_never_uses_more_than_it_was_taken_for(config, method, drafts, ahead, tokens):
    """With a limit of that many blocks it also ends, at its full length."""
    driver = engine(config, method, drafts=drafts, ahead=ahead)
    driver.declare(zone("acme"))
    request = driver.send("acme", prompt(2, seed=1, extra=3), max_tokens=tokens)
    used = max(driver.zone("acme").in_use for _ in run(driver, ahead))
    assert used <= request.peak
    assert request.num_output_tokens == tokens

    driver = engine(config, method, drafts=drafts, ahead=ahead)
    driver.declare(zone("acme", limit=request.peak))
    request = driver.send("acme", prompt(2, seed=1, extra=3), max_tokens=tokens)
    assert max(driver.zone("acme").in_use for _ in run(driver, ahead)) == used
    assert (request.num_output_tokens, request.num_preemptions) == (tokens, 0)


@pytest.mark.parametrize(
    ("kinds", "method", "longest"),
    [((), ("ngram", 3), 97), (("full", "mamba align"), ("eagle", 3), 96)],
    ids=["slots", "states"],
)
@pytest.mark.parametrize("ahead", [0, 1], ids=["step by step", "asynchronous"])
def test_no_request_yields_for_drafts_beyond_the_models_length(config, kinds, method, longest, ahead):
    """vLLM computes none of them."""
    config = with_longest(with_flags(with_drafts(config, *method), async_scheduling=ahead > 0), longest)
    check_that_no_zone_yields(config, kinds, ahead, (longest - 10, 53), max_tokens=10)


def test_no_request_yields_for_a_block_that_its_own_state_is_about_to_leave(config):
    config = with_longest(with_flags(with_drafts(config, "eagle", 3), async_scheduling=False), 96)
    check_that_no_zone_yields(config, ("full", "mamba align"), 0, (90, 42), max_tokens=6)


def with_longest(config, longest):
    """The config of a model that takes at most `longest` tokens."""
    config.model_config = copy(config.model_config)
    config.model_config.max_model_len = longest
    return config


def check_that_no_zone_yields(config, kinds, ahead, prompts, max_tokens):
    """Requests end undisturbed in a pool with exactly the blocks that they use."""
    used = [100]
    for _ in range(2):
        driver = Driver(make_scheduler(config, max(used), kinds=kinds))
        driver.drafts = WRONG
        driver.declare(zone("acme"))
        requests = [driver.send("acme", prompt(0, extra=tokens), max_tokens=max_tokens) for tokens in prompts]
        used = [driver.zone("acme").in_use for _ in run(driver, ahead)]
        assert [(each.num_output_tokens, each.num_preemptions) for each in requests] == [(max_tokens, 0)] * len(prompts)


def test_a_prompt_that_leaves_its_zone_no_room_to_draft_is_refused_and_a_shorter_one_bounded(config):
    driver = engine(config, ("eagle", 3))
    driver.declare(zone("acme", limit=3))
    too_long = driver.send("acme", prompt(2, extra=10), max_tokens=9)
    bounded = driver.send("acme", prompt(2, extra=9), max_tokens=9)
    driver.run()
    assert refusal(driver, too_long).message.startswith("the prompt of 42 tokens does not fit into the limit")
    assert driver.finished[bounded.request_id] == "length"
    assert bounded.num_output_tokens == 1


@pytest.mark.shows("speculative decoding (`--speculative-config`)")
def test_the_block_that_eagle_drops_is_counted_as_a_new_one(config):
    """As of 0.33, vLLM drops no block if a block's hash covers what comes after it."""
    hits, taken, dropped = {}, {}, {}
    for method in (("ngram", 3), ("eagle", 3)):
        driver = engine(config, method)
        dropped[method] = int(getattr(driver.scheduler, "use_eagle_block_drop", False))
        driver.declare(zone("acme"))
        driver.ask("acme", prompt(4, seed=1, extra=8))
        request = driver.send("acme", prompt(4, seed=1, extra=8), max_tokens=4)
        demanded = driver.scheduler._demand.to_admit(request)
        driver.step()
        hits[method] = driver.cached_tokens(request)
        taken[method] = driver.zone("acme").in_use
        assert taken[method] <= demanded <= taken[method] + 1
    assert dropped[("ngram", 3)] == 0
    assert hits == {method: (4 - blocks) * BLOCK_TOKENS for method, blocks in dropped.items()}
    assert set(taken.values()) == {5}


@given(
    method=st.sampled_from(METHODS),
    sent=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 16), st.integers(1, 40)), min_size=1, max_size=5),
    chances=st.lists(st.integers(0, 20), min_size=1),
)
@settings(deadline=None)
@pytest.mark.shows("speculative decoding (`--speculative-config`)")
def test_predicted_needs_of_a_step_are_what_it_takes(new_engine, method, sent, chances):
    numbers = iter(chances * 1000)
    driver = new_engine(method, lambda most: min(most, next(numbers)))
    driver.declare(zone("acme"))
    for blocks, extra, tokens in sent:
        driver.send("acme", prompt(blocks, extra=extra), max_tokens=tokens)
    scheduler, manager, demand = driver.scheduler, driver.scheduler.kv_cache_manager, driver.scheduler._demand

    def held() -> Counter:
        return Counter({name: len(manager.get_blocks(name).blocks[0]) for name in scheduler.requests})

    while scheduler.has_unfinished_requests():
        generating = [each for each in scheduler.running if not each.is_prefill_chunk]
        tokens = {each: each.num_tokens_with_spec - each.num_computed_tokens for each in generating}
        predicted = {each: manager.blocks_to_generate(each, demand.max_chunk) for each in generating}
        assert predicted == {each: demand.of_running(each, tokens[each]) for each in generating}
        assert {each: not blocks for each, blocks in predicted.items()} == {
            each: manager.has_slots_for(each, tokens[each]) for each in generating
        }
        to_admit = {each: demand.to_admit(each) for each in scheduler.waiting}
        before = held()
        output, result = driver.schedule()
        taken = held()
        for request, blocks in predicted.items():
            if output.num_scheduled_tokens.get(request.request_id) == tokens[request]:
                assert taken[request.request_id] - before[request.request_id] == blocks
        for request, blocks in to_admit.items():
            assert taken[request.request_id] <= blocks
        driver.update(output, result)
        driver.draft(output)
    driver.check()


def test_a_request_that_begins_with_room_for_drafts_begins_with_all_of_it_or_waits(config):
    """Only the last token of its prompt is left to compute, and another zone shares the step; vLLM asserts it."""
    driver = engine(config, ("ngram", 20))
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(1, seed=1, extra=1))
    driver.ask("burst", prompt(10))  # whose turn comes after acme's
    driver.send("burst", prompt(20), max_tokens=8)
    again = driver.send("acme", prompt(1, seed=1, extra=1), max_tokens=8)
    output, result = driver.schedule()
    assert output.num_scheduled_tokens[again.request_id] == 1 + 20
    driver.update(output, result)
    driver.run()
    assert set(driver.finished.values()) == {"length"}
    assert again.num_output_tokens == 8


@pytest.mark.shows("speculative decoding (`--speculative-config`)")
@pytest.mark.parametrize("method", [("ngram", 15), ("eagle", 15)])
def test_no_zone_loses_blocks_for_drafts_that_a_step_has_no_tokens_for(config, method):
    """As many blocks as were used when there were plenty are enough."""
    config = with_flags(config, max_num_batched_tokens=64, max_num_seqs=8)

    def used(capacity):
        driver = engine(config, method, capacity, drafts=WRONG)
        driver.declare(zone("acme"))
        # Their last blocks fill up one after another.
        sent = [driver.send("acme", prompt(0, seed=n, extra=3 + 2 * n), max_tokens=40) for n in range(8)]
        most = max(driver.zone("acme").in_use for _ in run(driver))
        assert [request.num_preemptions for request in sent] == [0] * 8
        return most

    assert used(used(100)) > 8


def test_drafts_of_one_zone_take_no_block_that_another_one_reserves(config):
    """A pool of 20: drafts of a borrowing zone find no room where the other zone's reservation begins."""
    driver = engine(config, ("eagle", 20), capacity=20, drafts=WRONG)
    driver.declare(zone("acme", reserved=10), zone("burst"))
    mine = driver.send("acme", prompt(3, seed=1), max_tokens=60)
    others = [driver.send("burst", prompt(1, extra=number), max_tokens=60) for number in range(1, 6)]
    for _ in run(driver):
        pass
    assert mine.num_preemptions == 0
    assert any(each.num_preemptions for each in others)
    assert {each.num_output_tokens for each in (mine, *others)} == {60}


@pytest.mark.parametrize(
    ("kinds", "step_tokens", "lengths"),
    [
        # The first chunk of the prompt ends at its last findable place, in the middle of a block.
        (("wide", "mamba align wide"), 128, [33]),
        # The share of a step ends with a block.
        (("full", "mamba align"), 40, [65, 33]),
    ],
    ids=["alone", "with another zone"],
)
@pytest.mark.parametrize("ahead", [0, 1], ids=["step by step", "asynchronous"])
def test_a_prompt_whose_end_is_just_behind_a_state_goes_on(config, kinds, step_tokens, lengths, ahead):
    """With several modules vLLM ends no chunk that close to a prompt's end, and with states none passes the block's."""
    flags = {"max_num_batched_tokens": step_tokens, "async_scheduling": ahead > 0}
    driver = Driver(make_scheduler(with_flags(with_drafts(config, "mtp", 2), **flags), 100, kinds=kinds))
    driver.drafts = WRONG
    driver.declare(zone("acme"), zone("burst"))
    for tenant, tokens in zip(("acme", "burst"), lengths, strict=False):
        driver.send(tenant, prompt(0, extra=tokens), max_tokens=3)
    for _ in run(driver, ahead):
        pass
    assert list(driver.finished.values()) == ["length"] * len(lengths)


def test_drafts_of_requests_that_generate_leave_a_part_of_each_step_to_prompts(config):
    driver = engine(config, ("draft_model", 7), capacity=1000)
    driver.declare(zone("flood"), zone("acme"))
    flood = [driver.send("flood", prompt(1), max_tokens=1000) for _ in range(40)]
    while any(request.is_prefill_chunk or not request.num_output_tokens for request in flood):
        driver.step()
    acme = driver.send("acme", prompt(4), max_tokens=2)
    for _ in range(4):
        driver.step()
        driver.check()
    assert acme.num_output_tokens


@pytest.mark.parametrize("drafts", [RIGHT, WRONG], ids=["right", "wrong"])
@pytest.mark.parametrize("method", [("ngram", 3), ("eagle", 3), ("mtp", 2)], ids=str)
@pytest.mark.shows("speculative decoding (`--speculative-config`)")
def test_who_is_preempted_while_its_drafts_are_in_the_model_keeps_what_the_model_makes_of_them(config, method, drafts):
    driver = engine(config, method, capacity=14, drafts=drafts, ahead=1)
    driver.declare(zone("acme", reserved=12, lending={"grace_seconds": 0.0}), zone("burst"))
    borrowers = [driver.send("burst", prompt(0, extra=30 - number), max_tokens=60) for number in range(4)]
    begun = driver.schedule()
    in_the_model = driver.schedule()
    driver.update(*begun)
    assert set(in_the_model[0].scheduled_spec_decode_tokens) == {each.request_id for each in borrowers}

    owner = driver.send("acme", prompt(10), max_tokens=5)
    following = driver.schedule()
    preempted = [each for each in borrowers if each.num_preemptions]
    assert preempted
    assert owner.request_id in following[0].num_scheduled_tokens
    written = {each: each.num_output_tokens for each in preempted}
    driver.update(*in_the_model)
    driver.check()
    made = 1 + (method[1] if drafts is RIGHT else 0)
    assert {each: each.num_output_tokens - written[each] for each in preempted} == dict.fromkeys(preempted, made)
    assert {each.num_computed_tokens for each in preempted} == {0}
    driver.update(*following)
    for _ in run(driver, ahead=1):
        pass
    assert {each.num_output_tokens for each in borrowers} == {60}
    assert set(driver.finished.values()) == {"length"}
