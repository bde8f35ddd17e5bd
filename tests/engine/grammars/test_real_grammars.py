"""The same with xgrammar's own grammars, in vLLM's own manager."""

import time
from random import Random

import pytest
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar, StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

from hack.harness.scheduler import Driver, make_scheduler
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.engine.grammars.grammar_debts import GrammarDebts
from tests.engine.grammars.stand_ins import send, step
from tests.engine.test_refused import refusal

CHOSEN = "$"
"""The token that a driver chooses in each step."""
DEAR_SECONDS = 0.1
"""Processor seconds: more than a tenant may take in a step without owing any."""


def tokenizer():
    """A tokenizer with thousands of tokens of several letters; many fit only in part, so a mask has to check them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [letter for letter in sorted(pre_tokenizers.ByteLevel.alphabet()) if letter != CHOSEN]
    draw = Random(1)
    words = {"".join(draw.choices('etaoinshrdlu,.":{}0123456789', k=draw.randint(2, 8))) for _ in range(16_000)}
    tokens = ["<s>", "</s>", *letters[:3], CHOSEN, *letters[3:], *sorted(words)]
    made = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def rules(number: int) -> str:
    """A grammar of `number` rules that may all be empty."""
    each = (f'r{rule} ::= "" | "a" r{rule} | [$a-z0-9] r{(rule + 1) % number}' for rule in range(number))
    return "\n".join(["root ::= " + " ".join(f"r{rule}" for rule in range(number)), *each])


@pytest.fixture
def driver(config) -> Driver:
    driver = Driver(make_scheduler(config, 100))
    driver.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in ("acme", "gold")))
    words = tokenizer()
    manager = driver.scheduler.structured_output_manager
    manager.backend = XgrammarBackend(config, tokenizer=words, vocab_size=len(words))
    return driver


def compiled(driver: Driver, grammar: str) -> StructuredOutputGrammar:
    return driver.scheduler.structured_output_manager.backend.compile_grammar(StructuredOutputOptions.GRAMMAR, grammar)


def dear(driver: Driver) -> str:
    """A grammar whose first mask takes that long on any machine."""
    rows = driver.scheduler.structured_output_manager.backend.allocate_token_bitmask(1)
    for number in range(4, 24):
        grammar = compiled(driver, rules(number))
        began = time.thread_time()
        grammar.fill_bitmask(rows, 0)
        if time.thread_time() - began > DEAR_SECONDS:
            return rules(number)
    raise AssertionError("no grammar is dear on this machine")


def test_one_that_slows_each_step_a_little_ends_in_time_and_no_other_does(driver: Driver):
    masks = driver.scheduler._masks
    # None of them takes too long in one step, however slow the machine is.
    masks._limit_seconds = masks._tenant_limit_seconds = 60.0
    masks._debts = GrammarDebts(limit_seconds=0.2, paid_per_second=0.0)
    slow = dear(driver)
    ended = send(driver, "acme", compiled(driver, slow), max_tokens=12)
    stays = [send(driver, "gold", compiled(driver, "root ::= [$]*"), max_tokens=14) for _ in range(8)]
    for _ in range(12):
        step(driver)
    assert driver.finished == {ended.request_id: "error"}
    assert "recently taken too much CPU time" in refusal(driver, ended).message
    assert 2 <= len(ended.output_token_ids) < 11
    again = send(driver, "acme", compiled(driver, "root ::= [$]*"))
    step(driver)
    assert "recently taken too much CPU time" in refusal(driver, again).message
    assert not masks._debts.is_too_much("gold", time.monotonic())
    assert masks._debts._owed.keys() == {"acme"}
    step(driver)
    assert [driver.finished[each.request_id] for each in stays] == ["length"] * len(stays)
    driver.check()
