"""A schema is validated as a grammar outside of the event loop, and only once."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from vllm.config import StructuredOutputsConfig
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from tenantzone_runtime.engine.patches.grammar_validation import GrammarValidation
from tenantzone_runtime.seal import SEAL_ARGUMENT, seal
from tests.frontend.harness import eventually


def asked_by(tenant: str | None) -> SamplingParams:
    sealed = {} if tenant is None else {SEAL_ARGUMENT: seal(bytes(32), tenant, "salt")}
    return SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"), extra_args=sealed)


class Slow:
    """A validation that takes until it may end, and records its callers."""

    def __init__(self) -> None:
        self.may_end = threading.Semaphore(0)
        self.begun: list[SamplingParams] = []

    def __call__(self, params, model_config, config, tokenizer) -> None:
        self.begun.append(params)
        assert self.may_end.acquire(timeout=60)

    async def until_begun(self, number: int) -> None:
        await asyncio.to_thread(eventually, lambda: len(self.begun) >= number)


async def test_one_tenants_wait_for_each_other_and_not_another_tenants():
    slow = Slow()
    validation = GrammarValidation(slow)
    asked = [asked_by("acme"), asked_by("acme"), asked_by("acme"), asked_by("burst")]
    tasks = [asyncio.create_task(validation.before(params, None, None, None)) for params in asked]
    await slow.until_begun(2)
    assert {id(params) for params in slow.begun} == {id(asked[0]), id(asked[3])}
    for _ in asked:
        slow.may_end.release()
    await asyncio.gather(*tasks)
    assert len(slow.begun) == 4


async def test_what_was_validated_is_not_validated_again():
    calls = []
    validation = GrammarValidation(lambda *given: calls.append(given))
    params = asked_by("acme")
    await validation.before(params, 1, 2, 3)
    validation.once(params, 1, 2, 3)
    validation.once(params.clone(), 1, 2, 3)
    assert calls == [(params, 1, 2, 3)]
    other = asked_by(None)
    validation.once(other, 1, 2, 3)
    assert calls[1:] == [(other, 1, 2, 3)]


async def test_what_vllm_says_of_it_is_raised_where_it_would_be():
    def refuse(*given):
        raise ValueError("no grammar")

    validation = GrammarValidation(refuse)
    with pytest.raises(ValueError, match="no grammar"):
        await validation.before(asked_by(None), None, None, None)


async def test_a_request_for_free_text_is_not_looked_at():
    def refuse(*given):
        raise AssertionError

    await GrammarValidation(refuse).before(SamplingParams(), None, None, None)


@pytest.mark.parametrize("tenant", ["acme", None])
@pytest.mark.parametrize(("backend", "by_vllm"), [("xgrammar", True), ("guidance", True), ("outlines", False)])
async def test_no_tenants_request_decides_which_library_reads_everybodys_grammars(tenant, backend, by_vllm):
    def choose(params, *given):
        params.structured_outputs._backend = backend
        params.structured_outputs._backend_was_auto = by_vllm

    asked = GrammarValidation(choose).before(asked_by(tenant), None, None, None)
    if tenant is not None and by_vllm and backend != "xgrammar":
        with pytest.raises(ValueError, match="xgrammar can't read it, and guidance is not in use"):
            await asked
    else:
        await asked


async def test_what_makes_vllm_take_another_library_is_refused():
    model = SimpleNamespace(is_diffusion=False)
    validation = GrammarValidation(SamplingParams._validate_structured_outputs)
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "(a|b)*a(a|b){20}"}},
        "patternProperties": {"z": {}},
    }
    params = asked_by("acme")
    params.structured_outputs = StructuredOutputsParams(json=schema)
    with pytest.raises(ValueError, match="xgrammar can't read it, and outlines is not in use"):
        await validation.before(params, model, StructuredOutputsConfig(), object())
