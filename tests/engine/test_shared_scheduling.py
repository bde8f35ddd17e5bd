"""Two of vLLM's real schedulers over one manager and its files: what is found, and which requests wait for how long."""

import time
from dataclasses import replace

import pytest

from hack.harness.scheduler import prompt, vllm_config
from tests.engine.sharing_engines import check_that_it_is_computed_after_its_budget, sharing_engines
from tests.shared_tier.conftest import own_manager as manager  # noqa: F401 - a fixture
from tests.shared_tier.engines import ENDLESS, HANG
from tests.zones.core import declare


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engines(config, manager):  # noqa: F811 - the fixture
    with sharing_engines(config, manager) as make:
        yield make


def test_a_prompt_that_one_engine_computed_another_one_loads(engines):
    first, second = engines()
    tokens = prompt(12)
    first.ask("acme", tokens)
    second.ask("acme", tokens)
    assert second.worker.loaded >= 11, "its last token is computed"
    loaded = second.worker.loaded
    second.ask("burst", tokens)
    assert second.worker.loaded == loaded


def test_a_caller_that_waits_for_an_answer_holds_up_no_other(engines, manager):  # noqa: F811 - the fixture
    (engine,) = engines(1)
    manager.pause()
    waiting = engine.send("acme", prompt(6))
    others = [engine.send("acme", [7] * 3), engine.send("burst", [8] * 3)]
    until = time.monotonic() + HANG
    while any(each.request_id in engine.scheduler.requests for each in others):
        assert time.monotonic() < until
        engine.step()
    assert waiting.request_id in engine.scheduler.requests, "its question has twenty seconds"
    assert engine.scheduler.tiers.is_looking_up(waiting), "a step's plan passes over it"
    manager.resume()
    engine.rest()


def test_after_its_budget_a_request_is_computed(engines, manager):  # noqa: F811 - the fixture
    (engine,) = engines(1, settings=replace(ENDLESS, query_seconds=0.05))
    check_that_it_is_computed_after_its_budget(engine, manager)


def test_a_conversation_that_began_without_the_manager_is_stored_when_it_goes_on(engines, manager):  # noqa: F811 - the fixture
    first, second = engines()
    manager.kill()
    begun = prompt(6)
    first.ask("acme", begun)
    manager.start()
    until = time.monotonic() + HANG
    while first.shared.problem:
        assert time.monotonic() < until
        first.scheduler.let_time_pass()
        time.sleep(0.01)
    longer = [*begun, *prompt(4)]
    first.ask("acme", longer)
    second.ask("acme", longer)
    assert second.worker.loaded >= 9


def test_what_a_purge_names_is_never_loaded(engines):
    first, second = engines()
    tokens = prompt(6)
    first.ask("acme", tokens)
    for each in (first, second):
        each.declare(declare("acme", purge="once"), declare("burst"))
    second.ask("acme", tokens)
    assert second.worker.loaded == 0
