"""A grammar that takes too long, or leads nowhere, fails its own request and costs no other a step."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from hack.harness.scheduler import Driver, make_scheduler, prompt
from tests.engine.grammars.stand_ins import Grammar, Slow, busy, rows_of_masks, send, step
from tests.engine.test_refused import refusal
from tests.frontend.harness import eventually


class Waiting(Grammar):
    """A grammar whose mask comes late without using a processor."""

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        late = threading.Event()
        threading.Timer(0.6, late.set).start()
        late.wait()
        super().fill_bitmask(rows, row)


def on_several_threads(driver: Driver) -> None:
    manager = driver.scheduler.structured_output_manager
    manager.fill_bitmask_parallel_threshold, manager.fill_bitmask_parallel_batch_size = 1, 1
    manager.executor_for_fillmask = ThreadPoolExecutor(3)


@pytest.mark.parametrize("threads", [False, True], ids=["one after the other", "on several threads"])
def test_the_step_goes_on_without_it_and_its_client_hears_why(driver: Driver, slow: Slow, threads: bool):
    if threads:
        on_several_threads(driver)
    first, ended, last = send(driver, "gold", Grammar(1)), send(driver, "acme", slow), send(driver, "gold", Grammar(2))
    masks = step(driver)
    assert not slow.over.is_set(), "no request waits until it is made"
    assert masks == {first.request_id: [1], ended.request_id: [-1], last.request_id: [2]}
    assert driver.finished == {ended.request_id: "error"}
    reported = refusal(driver, ended)
    assert (reported.status, reported.message.startswith("the grammar of the structured output takes")) == (400, True)
    assert step(driver).keys() == {first.request_id, last.request_id}
    assert driver.finished[last.request_id] == "length"
    driver.check()


def test_while_it_is_still_made_its_tenant_gets_no_other_grammar(driver: Driver, slow: Slow):
    send(driver, "acme", slow)
    step(driver)
    refused, plain, of_another = (
        send(driver, "acme", Grammar(1)),
        driver.send("acme", prompt(1), max_tokens=2),
        send(driver, "gold", Grammar(2)),
    )
    for _ in range(3):
        step(driver)
    outcomes = [driver.finished[each.request_id] for each in (refused, plain, of_another)]
    assert outcomes == ["error", "length", "length"]
    assert "or without structured output" in refusal(driver, refused).message
    slow.over.set()
    eventually(lambda: not busy(driver))
    again = send(driver, "acme", Grammar(3))
    assert step(driver) == {again.request_id: [3]}


def test_what_it_makes_in_the_end_is_no_requests_mask(driver: Driver, slow: Slow):
    send(driver, "acme", slow)
    stays = send(driver, "gold", Grammar(1))
    step(driver)
    rows = driver.scheduler.structured_output_manager._grammar_bitmask
    slow.over.set()
    eventually(lambda: not busy(driver))
    assert 9 not in rows
    assert step(driver) == {stays.request_id: [1]}


def test_however_many_a_tenant_has_it_keeps_one_thread(driver: Driver):
    grammars = [Slow(9) for _ in range(5)] + [Grammar(2)]
    try:
        ended = [send(driver, "acme", grammar) for grammar in grammars]
        stays = send(driver, "gold", Grammar(1))
        masks = step(driver)
        assert masks[stays.request_id] == [1]
        assert driver.finished == {each.request_id: "error" for each in ended}
        assert len(driver.scheduler._masks._left) == 1
        reported = [refusal(driver, each).message for each in ended]
        assert [message.startswith("the grammar of the structured output takes") for message in reported] == [True] + [
            False
        ] * 5
        assert all("or without structured output" in message for message in reported[1:])
    finally:
        for grammar in grammars[:-1]:
            grammar.over.set()


def test_two_tenants_that_do_so_are_distinguished(driver: Driver, slow: Slow):
    other = Slow(8)
    try:
        ended = [send(driver, "acme", slow), send(driver, "gold", other)]
        assert step(driver) == {each.request_id: [-1] for each in ended}
        assert driver.finished == {each.request_id: "error" for each in ended}
        slow.over.set()
        eventually(lambda: not driver.scheduler._masks._left["acme"].is_alive())
        again = send(driver, "acme", Grammar(3))
        refused = send(driver, "gold", Grammar(3))
        assert step(driver) == {again.request_id: [3]}
        assert driver.finished[refused.request_id] == "error"
    finally:
        other.over.set()


def test_what_waits_for_the_first_mask_ends_with_the_others_of_its_tenant(driver: Driver, slow: Slow):
    ready: Future[Grammar] = Future()
    waits = driver.send("acme", prompt(1), grammar=ready, max_tokens=2)
    send(driver, "acme", slow)
    step(driver)
    ready.set_result(Slow(8))
    step(driver)
    step(driver)
    assert "or without structured output" in refusal(driver, waits).message
    assert len(driver.scheduler._masks._left) == 1


@pytest.mark.parametrize("threads", [False, True], ids=["one after the other", "on several threads"])
def test_a_form_by_which_no_token_may_come_is_its_clients_mistake(driver: Driver, threads: bool):
    if threads:
        on_several_threads(driver)
    ended, stays = send(driver, "acme", Grammar(0)), send(driver, "gold", Grammar(1))
    assert step(driver) == {ended.request_id: [-1], stays.request_id: [1]}
    assert driver.finished == {ended.request_id: "error"}
    reported = refusal(driver, ended)
    assert (reported.status, "allows no next token" in reported.message) == (400, True)
    assert step(driver) == {stays.request_id: [1]}
    driver.check()


def test_an_engine_that_is_short_of_processors_ends_no_request(driver: Driver):
    late = send(driver, "acme", Waiting(7))
    assert step(driver) == {late.request_id: [7]}
    assert not driver.finished


def test_a_mask_that_fails_fails_as_vllms_own(driver: Driver):
    class Broken(Grammar):
        def fill_bitmask(self, rows, row):
            raise RuntimeError("no mask")

    send(driver, "acme", Broken(1))
    output, _ = driver.schedule()
    with pytest.raises(RuntimeError, match="no mask"):
        driver.scheduler.get_grammar_bitmask(output)


def test_without_zones_masks_are_made_where_vllm_makes_them(config):
    driver = Driver(make_scheduler(config, 100))
    driver.scheduler.structured_output_manager._grammar_bitmask = rows_of_masks()
    grammar = Grammar(1)
    request = send(driver, None, grammar)
    assert step(driver) == {request.request_id: [1]}
    assert grammar.thread == threading.get_ident()
