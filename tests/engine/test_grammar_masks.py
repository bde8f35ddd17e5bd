"""A grammar that takes too long, or leads nowhere, costs its own request, and nobody else a step."""

import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from vllm.v1.request import Request

from hack.harness.scheduler import AnyToken, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.config import ZoneConfig
from tenantzone_runtime.engine.grammar_debts import GrammarDebts
from tenantzone_runtime.engine.grammar_work import GivenUp, Taken, Work
from tests.door.harness import eventually
from tests.engine.test_refused import refusal

ROWS, WORDS = 64, 4


class Grammar(AnyToken):
    """By which each answer is right, and whose masks are its name."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.thread: int | None = None

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        self.thread = threading.get_ident()
        rows[row].fill_(self.name)

    def rollback(self, count: int) -> None:
        pass


class Slow(Grammar):
    """One whose mask takes a processor until it is told that it is over."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.over = threading.Event()

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        while not self.over.is_set():
            # It lets others run meanwhile, as grammar libraries do.
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)
        super().fill_bitmask(rows, row)


class Waiting(Grammar):
    """One whose mask comes late, and takes no processor."""

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        late = threading.Event()
        threading.Timer(0.6, late.set).start()
        late.wait()
        super().fill_bitmask(rows, row)


class Dear(Grammar):
    """One that takes a part of a processor's time each time that no grammar is given up for."""

    def __init__(self, name: int, seconds: float = 0.05) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.validated = 0

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        self._work()
        super().fill_bitmask(rows, row)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        self.validated += 1
        self._work()
        return tokens

    def _work(self) -> None:
        began = time.thread_time()
        while time.thread_time() - began < self.seconds:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)


class SlowToTakeIn(Grammar):
    """One that takes a processor for each token that was chosen, or drafted, until it is told that it is over."""

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
    """One that notes what it takes in, and in which thread."""

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


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config) -> Driver:
    driver = Driver(make_scheduler(config, 100))
    driver.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in ("acme", "gold")))
    driver.scheduler.structured_output_manager._grammar_bitmask = torch.zeros((ROWS, WORDS), dtype=torch.int32)
    return driver


@pytest.fixture
def slow() -> Iterator[Slow]:
    grammar = Slow(9)
    yield grammar
    grammar.over.set()


def send(driver: Driver, tenant: str, grammar: Grammar, max_tokens: int = 2) -> Request:
    ready: Future[Grammar] = Future()
    ready.set_result(grammar)
    return driver.send(tenant, prompt(1), grammar=ready, max_tokens=max_tokens)


def step(driver: Driver) -> dict[str, list[int]]:
    """One step, with the masks of those whose answers are structured."""
    output, result = driver.schedule()
    told = driver.scheduler.get_grammar_bitmask(output)
    masks = {} if told is None else dict(zip(told.structured_output_request_ids, told.grammar_bitmask, strict=False))
    driver.update(output, result)
    return {name: sorted(set(mask.tolist())) for name, mask in masks.items()}


def on_several_threads(driver: Driver) -> None:
    manager = driver.scheduler.structured_output_manager
    manager.fill_bitmask_parallel_threshold, manager.fill_bitmask_parallel_batch_size = 1, 1
    manager.executor_for_fillmask = ThreadPoolExecutor(3)


def busy(driver: Driver) -> bool:
    return any(worker.is_alive() for worker in driver.scheduler._masks._left.values())


@pytest.mark.parametrize("threads", [False, True], ids=["one after the other", "on several threads"])
def test_the_step_goes_on_without_it_and_its_client_hears_why(driver: Driver, slow: Slow, threads: bool):
    if threads:
        on_several_threads(driver)
    first, ended, last = send(driver, "gold", Grammar(1)), send(driver, "acme", slow), send(driver, "gold", Grammar(2))
    masks = step(driver)
    assert not slow.over.is_set(), "nobody waits until it is made"
    assert masks == {first.request_id: [1], ended.request_id: [-1], last.request_id: [2]}
    assert driver.finished == {ended.request_id: "error"}
    told = refusal(driver, ended)
    assert (told.status, told.message.startswith("the form that the answer should have takes")) == (400, True)
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
    assert "ask without a form, or later" in refusal(driver, refused).message
    slow.over.set()
    eventually(lambda: not busy(driver))
    again = send(driver, "acme", Grammar(3))
    assert step(driver) == {again.request_id: [3]}


def test_what_it_makes_in_the_end_is_nobodys_mask(driver: Driver, slow: Slow):
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
        told = [refusal(driver, each).message for each in ended]
        assert [message.startswith("the form that") for message in told] == [True] + [False] * 5
        assert all("ask without a form, or later" in message for message in told[1:])
    finally:
        for grammar in grammars[:-1]:
            grammar.over.set()


def test_a_tenants_masks_take_no_more_together_either(driver: Driver):
    driver.scheduler._masks._tenant_limit_seconds = 0.3
    ended = [send(driver, "acme", Dear(3)) for _ in range(30)]
    stays = [send(driver, "gold", Dear(number)) for number in (1, 2)]
    masks = step(driver)
    assert [masks[each.request_id] for each in stays] == [[1], [2]]
    assert driver.finished == {each.request_id: "error" for each in ended}
    assert "for fewer at once" in refusal(driver, ended[0]).message
    eventually(lambda: not busy(driver))
    again = [send(driver, "acme", Dear(4)) for _ in range(2)]
    assert step(driver).items() >= {each.request_id: [4] for each in again}.items()
    driver.check()


def test_drafted_tokens_count_with_the_masks_of_their_step(driver: Driver):
    # Nobody looks at what is being done before it is done, however slow the machine is.
    driver.scheduler._masks._limit_seconds = 60.0
    driver.scheduler._masks._tenant_limit_seconds = 0.3
    grammar, others = Dear(3, seconds=0.14), Dear(1, seconds=0.14)
    request, stays = send(driver, "acme", grammar, max_tokens=9), send(driver, "gold", others, max_tokens=9)
    step(driver)
    validate = driver.scheduler.structured_output_manager.validate_tokens
    assert [validate(request, [7]) for _ in range(5)] == [[7], [7], [], [], []]
    assert grammar.validated == 2
    assert validate(stays, [7]) == [7]


def test_what_slows_each_step_a_little_ends_in_time_and_nobody_else(driver: Driver):
    debts = driver.scheduler._masks._debts = GrammarDebts(limit_seconds=0.25, paid_per_second=0.0)
    ended = [send(driver, "acme", grammar, max_tokens=50) for grammar in (Dear(3, seconds=0.15), Grammar(2))]
    stays, plain = send(driver, "gold", Grammar(1), max_tokens=8), driver.send("acme", prompt(1), max_tokens=8)
    masks = [step(driver) for _ in range(3)]
    assert masks == [{ended[0].request_id: [3], ended[1].request_id: [2], stays.request_id: [1]}] * 3
    refused = send(driver, "acme", Grammar(2))
    masks = [step(driver) for _ in range(5)]
    assert masks[-1] == {stays.request_id: [1]}
    assert driver.finished == {each.request_id: "error" for each in [*ended, refused]} | {
        each.request_id: "length" for each in (stays, plain)
    }
    for each in (*ended, refused):
        told = refusal(driver, each)
        assert (told.status, "too long of late" in told.message) == (400, True)
    debts._paid_per_second = 1e6
    again = send(driver, "acme", Grammar(2))
    assert step(driver) == {again.request_id: [2]}
    driver.check()


def test_what_was_given_up_is_owed_too(driver: Driver, slow: Slow):
    driver.scheduler._masks._debts = GrammarDebts(limit_seconds=0.15, paid_per_second=0.0)
    send(driver, "acme", slow)
    step(driver)
    # Once a step's masks are made, what the one before has taken is counted.
    later = [send(driver, "gold", Grammar(1), max_tokens=5)]
    step(driver)
    slow.over.set()
    eventually(lambda: not busy(driver))
    later.append(send(driver, "acme", Grammar(2)))
    assert step(driver) == {later[0].request_id: [1]}
    assert "too long of late" in refusal(driver, later[1]).message


def test_two_tenants_that_do_so_are_told_apart(driver: Driver, slow: Slow):
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


def test_to_take_in_a_token_holds_up_no_step_either(driver: Driver):
    slow = SlowToTakeIn(3)
    try:
        ended, stays = send(driver, "acme", slow, max_tokens=5), send(driver, "gold", Grammar(1), max_tokens=3)
        assert step(driver) == {ended.request_id: [3], stays.request_id: [1]}
        assert step(driver) == {ended.request_id: [-1], stays.request_id: [1]}
        assert not slow.over.is_set(), "nobody waits until it is taken in"
        assert driver.finished == {ended.request_id: "error"}
        assert refusal(driver, ended).message.startswith("the form that the answer should have takes")
        later = send(driver, "acme", Grammar(2))
        assert step(driver) == {stays.request_id: [1]}
        assert "ask without a form, or later" in refusal(driver, later).message
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
        assert refusal(driver, ended).message.startswith("the form that the answer should have takes")
    finally:
        slow.over.set()


def test_what_waits_for_the_first_mask_ends_with_the_others_of_its_tenant(driver: Driver, slow: Slow):
    ready: Future[Grammar] = Future()
    waits = driver.send("acme", prompt(1), grammar=ready, max_tokens=2)
    send(driver, "acme", slow)
    step(driver)
    ready.set_result(Slow(8))
    step(driver)
    step(driver)
    assert "ask without a form, or later" in refusal(driver, waits).message
    assert len(driver.scheduler._masks._left) == 1


def test_tokens_are_taken_in_beside_the_step_before_the_next_mask_and_drafts_come_after_them(driver: Driver):
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
    """As 0.33 does of tokens that end an answer's reasoning. Who waited there for that thread would wait for ever."""
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


def test_drafts_that_a_step_left_taken_in_are_taken_back_before_the_next_one(driver: Driver):
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


@pytest.mark.parametrize("threads", [False, True], ids=["one after the other", "on several threads"])
def test_a_form_by_which_no_token_may_come_is_its_clients_mistake(driver: Driver, threads: bool):
    if threads:
        on_several_threads(driver)
    ended, stays = send(driver, "acme", Grammar(0)), send(driver, "gold", Grammar(1))
    assert step(driver) == {ended.request_id: [-1], stays.request_id: [1]}
    assert driver.finished == {ended.request_id: "error"}
    told = refusal(driver, ended)
    assert (told.status, "no token may come next" in told.message) == (400, True)
    assert step(driver) == {stays.request_id: [1]}
    driver.check()


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
    assert "no token may come next" in refusal(driver, request).message


def test_an_engine_that_is_short_of_processors_ends_nobody(driver: Driver):
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
    driver.scheduler.structured_output_manager._grammar_bitmask = torch.zeros((ROWS, WORDS), dtype=torch.int32)
    grammar = Grammar(1)
    request = send(driver, None, grammar)
    assert step(driver) == {request.request_id: [1]}
    assert grammar.thread == threading.get_ident()
