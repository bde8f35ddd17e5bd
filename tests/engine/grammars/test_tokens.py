"""A tenant's grammar accepts tokens and checks drafted ones in another thread than the step's."""

import hashlib
import threading

import pytest

from hack.harness.scheduler import Driver
from tenantzone_runtime.engine.grammars.grammar_work import GivenUp, Taken, Work
from tests.engine.grammars.stand_ins import Grammar, busy, send, step
from tests.engine.test_refused import refusal
from tests.frontend.harness import eventually


class SlowToTakeIn(Grammar):
    """A grammar that keeps a processor busy for each chosen or drafted token until the test stops it."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.over = threading.Event()

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        while not self.over.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        self.accept_tokens("", tokens)
        return tokens


class Noting(Grammar):
    """A grammar that records the tokens it accepts, and in which thread."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.taken_in: list[int] = []
        self.threads: set[int] = set()

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        self.taken_in += tokens
        self.threads.add(threading.get_ident())
        return True

    def rollback(self, count: int) -> None:
        del self.taken_in[len(self.taken_in) - count :]

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        self.threads.add(threading.get_ident())
        return tokens[:1]


class Rejecting(Grammar):
    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return False


def test_to_take_in_a_token_holds_up_no_step_either(driver: Driver):
    slow = SlowToTakeIn(3)
    try:
        ended, stays = send(driver, "acme", slow, max_tokens=5), send(driver, "gold", Grammar(1), max_tokens=3)
        assert step(driver) == {ended.request_id: [3], stays.request_id: [1]}
        assert step(driver) == {ended.request_id: [-1], stays.request_id: [1]}
        assert not slow.over.is_set(), "no request waits until it is taken in"
        assert driver.finished == {ended.request_id: "error"}
        assert refusal(driver, ended).message.startswith("the grammar of the structured output takes")
        later = send(driver, "acme", Grammar(2))
        assert step(driver) == {stays.request_id: [1]}
        assert "or without structured output" in refusal(driver, later).message
    finally:
        slow.over.set()
    eventually(lambda: not busy(driver))
    driver.check()


def test_nor_does_it_hold_one_up_to_look_at_drafted_tokens(driver: Driver):
    slow = SlowToTakeIn(3)
    try:
        ended = send(driver, "acme", slow, max_tokens=5)
        step(driver)
        assert driver.scheduler.structured_output_manager.validate_tokens(ended, [1, 2]) == []
        assert not slow.over.is_set()
        step(driver)
        assert refusal(driver, ended).message.startswith("the grammar of the structured output takes")
    finally:
        slow.over.set()


def test_tokens_are_taken_in_during_the_step_before_the_next_mask_and_drafts_come_after_them(driver: Driver):
    grammar = Noting(3)
    request = send(driver, "acme", grammar, max_tokens=4)
    step(driver)
    assert grammar.taken_in == []
    chosen = list(request.output_token_ids)
    assert driver.scheduler.structured_output_manager.validate_tokens(request, [7, 8]) == [7]
    assert grammar.taken_in == chosen
    step(driver)
    step(driver)
    assert grammar.taken_in == list(request.output_token_ids)[:2]
    assert threading.get_ident() not in grammar.threads


def test_what_vllm_asks_while_it_makes_masks_is_answered_there(driver: Driver):
    """vLLM 0.33 asks this about tokens that end an answer's reasoning. A wait there for that thread would never end."""
    manager = driver.scheduler.structured_output_manager
    make, asked = driver.scheduler._masks._make, []

    def ask_and_make(requests, ids, spec_tokens):
        asked.extend(requests[name].structured_output_request.grammar.validate_tokens([5, 6]) for name in ids)
        return make(requests, ids, spec_tokens)

    driver.scheduler._masks._make = ask_and_make
    request = send(driver, "acme", Noting(3), max_tokens=4)
    assert step(driver) == {request.request_id: [3]}
    assert asked == [[5]]
    assert manager.validate_tokens(request, [7, 8]) == [7]


def test_drafts_that_a_step_left_taken_in_are_undone_before_the_next_one(driver: Driver):
    grammar = Noting(3)
    request = send(driver, "acme", grammar, max_tokens=4)
    step(driver)
    guarded, work = request.structured_output_request.grammar, Work(Taken())
    guarded.begin(work)
    guarded.catch_up(0)
    guarded.accept_tokens(request.request_id, [7])
    work.is_given_up = True
    with pytest.raises(GivenUp):
        guarded.fill_bitmask(None, 0)
    assert grammar.taken_in == [*request.output_token_ids, 7]
    guarded.work = None
    step(driver)
    assert grammar.taken_in == list(request.output_token_ids)[:1]


def test_a_token_that_does_not_fit_is_the_engines_mistake(driver: Driver):
    request = send(driver, "acme", Rejecting(3), max_tokens=5)
    step(driver)
    step(driver)
    assert driver.finished == {request.request_id: "error"}
    assert refusal(driver, request) is None


def test_but_where_drafts_led_nowhere_it_is_the_forms(driver: Driver):
    request = send(driver, "acme", Rejecting(3), max_tokens=5)
    step(driver)
    request.structured_output_request.grammar.led_nowhere = True
    step(driver)
    assert "allows no next token" in refusal(driver, request).message
