"""The time that all of one tenant's grammars may take in a step, and over many steps."""

import hashlib
from concurrent.futures import Future

import torch
from vllm.config import VllmConfig
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, with_drafts
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.engine.grammars.grammar_masks import LIMIT_SECONDS, GrammarDebts
from tests.engine.grammars.stand_ins import Dear, Grammar, Slow, busy, rows_of_masks, send, step
from tests.engine.test_refused import refusal
from tests.frontend.harness import eventually


def test_a_tenants_masks_take_no_more_together_either(driver: Driver):
    driver.scheduler._masks._tenant_limit_seconds = 0.3
    ended = [send(driver, "acme", Dear(3)) for _ in range(30)]
    stays = [send(driver, "gold", Dear(number)) for number in (1, 2)]
    masks = step(driver)
    assert [masks[each.request_id] for each in stays] == [[1], [2]]
    assert driver.finished == {each.request_id: "error" for each in ended}
    assert "or fewer requests at once" in refusal(driver, ended[0]).message
    eventually(lambda: not busy(driver))
    again = [send(driver, "acme", Dear(4)) for _ in range(2)]
    assert step(driver).items() >= {each.request_id: [4] for each in again}.items()
    driver.check()


def test_drafted_tokens_count_with_the_masks_of_their_step(driver: Driver):
    # The time is checked only afterwards, however slow the machine is.
    driver.scheduler._masks._limit_seconds = 60.0
    driver.scheduler._masks._tenant_limit_seconds = 0.3
    grammar, others = Dear(3, seconds=0.14), Dear(1, seconds=0.14)
    request, stays = send(driver, "acme", grammar, max_tokens=9), send(driver, "gold", others, max_tokens=9)
    step(driver)
    validate = driver.scheduler.structured_output_manager.validate_tokens
    assert [validate(request, [7]) for _ in range(5)] == [[7], [7], [], [], []]
    assert grammar.validated == 2
    assert validate(stays, [7]) == [7]


def test_what_slows_each_step_a_little_ends_in_time_and_no_other_request(driver: Driver):
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
        reported = refusal(driver, each)
        assert (reported.status, "recently taken too much CPU time" in reported.message) == (400, True)
    debts._paid_per_second = 1e6
    again = send(driver, "acme", Grammar(2))
    assert step(driver) == {again.request_id: [2]}
    driver.check()


def test_what_was_given_up_is_owed_too(driver: Driver, slow: Slow):
    driver.scheduler._masks._debts = GrammarDebts(limit_seconds=0.15, paid_per_second=0.0)
    send(driver, "acme", slow)
    step(driver)
    # The time of a step's masks is counted once the next step's masks are made.
    later = [send(driver, "gold", Grammar(1), max_tokens=5)]
    step(driver)
    slow.over.set()
    eventually(lambda: not busy(driver))
    later.append(send(driver, "acme", Grammar(2)))
    assert step(driver) == {later[0].request_id: [1]}
    assert "recently taken too much CPU time" in refusal(driver, later[1]).message


def test_what_is_given_up_counts_once_and_only_as_far_as_it_had_come(driver: Driver, slow: Slow):
    send(driver, "acme", slow)
    step(driver)
    taken = driver.scheduler._masks._taken
    then, turns = taken.by_tenant()["acme"], slow.turns
    assert then[0] > LIMIT_SECONDS
    # However long it continues, and whether or not another step has begun when it ends.
    eventually(lambda: slow.turns > 2 * turns)
    slow.over.set()
    eventually(lambda: not busy(driver))
    assert taken.by_tenant()["acme"] == then


def test_who_owes_too_much_does_so_too_when_its_zone_is_made_anew(driver: Driver):
    driver.scheduler._masks._debts = GrammarDebts(limit_seconds=0.0, paid_per_second=0.0)
    stays = send(driver, "gold", Grammar(1), max_tokens=9)
    send(driver, "acme", Dear(3, seconds=0.1), max_tokens=1)
    step(driver)
    step(driver)
    acme, gold = (ZoneConfig(name=name, tenant=name, generation=1) for name in ("acme", "gold"))
    driver.declare(gold)
    step(driver)
    assert "acme" not in driver.scheduler.block_pool.ledger.zones
    driver.declare(acme, gold)
    refused = send(driver, "acme", Grammar(2))
    assert step(driver) == {stays.request_id: [1]}
    assert "recently taken too much CPU time" in refusal(driver, refused).message


class SlowDrafts(Slow):
    """A grammar that takes long for drafted tokens only."""

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        Grammar.fill_bitmask(self, rows, row)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        while not self.over.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)
        return tokens


def test_a_request_that_is_aborted_after_its_grammar_was_given_up_has_ended(config: VllmConfig):
    """The client may abort it before the step that would have refused it."""
    driver = Driver(make_scheduler(with_drafts(config, "ngram", 3), 100))
    driver.declare(ZoneConfig(name="acme", tenant="acme", generation=1))
    driver.scheduler.structured_output_manager._grammar_bitmask = rows_of_masks()
    slow = SlowDrafts(9)
    try:
        request = send(driver, "acme", slow, max_tokens=40)
        output, result = driver.schedule()
        driver.scheduler.get_grammar_bitmask(output)
        driver.update(output, result)
        driver.draft(output)
    finally:
        slow.over.set()
    driver.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    driver.send("acme", prompt(1), max_tokens=3)
    for _ in range(10):
        step(driver)
    assert driver.scheduler.get_num_unfinished_requests() == 0
    assert driver.zone("acme").counters.requests == {"abort": 1, "length": 1}


def test_a_request_whose_grammar_does_not_compile_counts_once(driver: Driver):
    compiling: Future[Grammar] = Future()
    driver.send("acme", prompt(1), grammar=compiling)
    compiling.set_exception(ValueError("no such rule"))
    driver.run()
    assert driver.zone("acme").counters.requests == {"error": 1}
    assert driver.scheduler.tenancy.refusals["unsupported"] == 1
