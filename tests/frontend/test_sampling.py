"""What a request may make the engine do for each token."""

import asyncio

import pytest
from vllm.sampling_params import RepetitionDetectionParams, SamplingParams
from vllm.v1.core.sched.utils import check_sequence_repetition

from tenantzone_runtime.engine.patches.logprob_bounds import bound_prompt_logprobs, with_bounded_logprobs
from tenantzone_runtime.frontend.body.sampling import LONGEST, MAX_CHARACTERS
from tests.frontend.harness import PROMPT, body_seen, call, echo, error_of, frontend

ROUTES = ["/v1/completions", "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/responses", "/v1/messages"]


def members(field: str, count: int) -> object:
    return {str(token): 1.0 for token in range(count)} if field == "logit_bias" else list(range(count))


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("field", LONGEST)
def test_lists_of_tokens_are_bounded(folder, path, field):
    app = frontend(folder)
    longest = {**PROMPT, field: members(field, LONGEST[field])}
    assert body_seen(call(app, path=path, key="acme-key", body=longest))[field] == longest[field]
    refused = call(app, path=path, key="acme-key", body={**PROMPT, field: members(field, LONGEST[field] + 1)})
    assert (refused.status_code, error_of(refused)["param"]) == (400, field)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("field", MAX_CHARACTERS)
def test_texts_that_each_token_is_compared_with_are_bounded(folder, path, field):
    app, most = frontend(folder), MAX_CHARACTERS[field]
    for fits in ("a" * (most - 1), ["a"] * (most // 2), [""] * most, None, []):
        assert call(app, path=path, key="acme-key", body={**PROMPT, field: fits}).is_success
    for exceeds in ("a" * most, ["a"] * (most // 2 + 1), [""] * (most + 1)):
        refused = call(app, path=path, key="acme-key", body={**PROMPT, field: exceeds})
        assert (refused.status_code, error_of(refused)["param"]) == (400, field)


USUAL = [
    {"max_pattern_size": 20, "min_count": 4},
    {"max_pattern_size": 64, "min_pattern_size": 8, "min_count": 3},
    {"max_pattern_size": 4, "min_count": 1000},
    {"max_pattern_size": 0, "min_count": 0},
    {},
    None,
]
FAR = [
    {"max_pattern_size": 1000, "min_count": 2},
    {"max_pattern_size": 10**9, "min_pattern_size": 10**8, "min_count": 2},
    {"max_pattern_size": 10**400, "min_count": 2},
    {"max_pattern_size": "1_000", "min_count": "2"},
    {"max_pattern_size": 1000},
    {"max_pattern_size": [1000], "min_count": 2},
    {"max_pattern_size": 100, "min_count": 10**9},
]


@pytest.mark.parametrize("wanted", USUAL)
def test_repetition_may_be_looked_for_as_usual(folder, wanted):
    seen = body_seen(call(frontend(folder), key="acme-key", body={**PROMPT, "repetition_detection": wanted}))
    assert seen["repetition_detection"] == wanted


@pytest.mark.parametrize("wanted", FAR)
def test_repetition_is_not_looked_for_far_back(folder, wanted):
    refused = call(frontend(folder), key="acme-key", body={**PROMPT, "repetition_detection": wanted})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "repetition_detection")


class Counted(list):
    """Counts how often a member was looked at."""

    looks = 0

    def __getitem__(self, index):
        self.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("wanted", [each for each in USUAL if each and each["max_pattern_size"]])
def test_what_is_let_through_costs_a_step_little_with_the_worst_of_answers(wanted):
    """One differing token, so far back that each length is compared as a whole: without a bound 10 s per token."""
    answer = Counted([1] * 32_000)
    answer[-wanted["max_pattern_size"]] = 2
    check_sequence_repetition(answer, RepetitionDetectionParams(**wanted))
    assert 0 < answer.looks < 2**15


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 32, "max_tokens": 1500, "logprobs": True, "top_logprobs": 20}, "top_logprobs"),
        ({"max_completion_tokens": 32_000, "logprobs": True, "top_logprobs": 5}, "top_logprobs"),
        ({"n": 2, "logprobs": True, "top_logprobs": 20}, "top_logprobs"),
        ({"prompt": ["a"] * 100, "max_tokens": 300, "logprobs": 5}, "logprobs"),
        ({"max_tokens": "50_000", "logprobs": "20"}, "logprobs"),
        ({"max_output_tokens": 10_000, "top_logprobs": 20, "stream": False}, "top_logprobs"),
        ({"max_tokens": 2000, "logprobs": 1, "logprob_token_ids": list(range(100))}, "logprob_token_ids"),
        ({"max_tokens": 1, "logprobs": -1}, "logprobs"),
        ({"max_tokens": 1, "logprobs": -1, "stream": True}, "logprobs"),
    ],
)
def test_an_answer_in_one_piece_has_not_too_many_log_probabilities(folder, body, param):
    """The first one kept vLLM's event loop busy for a minute."""
    refused = call(frontend(folder), key="acme-key", body={**PROMPT, **body})
    assert (refused.status_code, error_of(refused)["param"]) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        {"n": 32, "max_tokens": 1500, "logprobs": True, "top_logprobs": 20, "stream": True},
        {"n": 32, "max_tokens": 1500},
        {"logprobs": True, "top_logprobs": 20},
        {"max_tokens": 1, "n": 128, "logprobs": 20},
        {"max_tokens": 32_000, "logprobs": 0},
        {"max_tokens": 32_000, "logprobs": False, "top_logprobs": 0},
        {"max_tokens": 4096, "logprobs": 5, "echo": True},
    ],
)
def test_log_probabilities_are_had_as_usual(folder, body):
    body_seen(call(frontend(folder), key="acme-key", body={**PROMPT, **body}))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions/batch", {}),
        ("/v1/responses", {}),
        ("/v1/chat/completions", {"use_beam_search": True}),
        ("/v1/chat/completions", {"use_beam_search": "yes"}),
    ],
)
def test_what_says_stream_and_comes_in_one_piece_counts_as_one(folder, path, fields):
    body = {**PROMPT, "stream": True, "max_tokens": 10_000, "logprobs": True, "top_logprobs": 20}
    assert call(frontend(folder), path="/v1/chat/completions", key="acme-key", body=body).is_success
    refused = call(frontend(folder), path=path, key="acme-key", body={**body, **fields})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "top_logprobs")


class Prompts:
    """vLLM's server, as it passes prompts of the given lengths in `tokens` to the engine, one after another."""

    def __init__(self, *tokens: int, **params: int) -> None:
        self.tokens = tokens
        self.params = SamplingParams(**params)
        self.handed_over = 0

    async def __call__(self, scope, receive, send):
        for tokens in self.tokens:
            prompt = {"type": "token", "prompt_token_ids": [1] * tokens}
            begun = asyncio.ensure_future(bound_prompt_logprobs(prompt, self.params, 1000))
            gone = asyncio.ensure_future(until_gone(receive))
            await asyncio.wait((begun, gone), return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not begun.done():
                begun.cancel()
                return
            self.handed_over += 1
        await echo(scope, receive, send)


async def until_gone(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/chat/completions/batch"])
@pytest.mark.parametrize(
    ("body", "prompts", "handed_over", "param"),
    [
        ({"prompt_logprobs": 20}, Prompts(1560, prompt_logprobs=20), 1, None),
        ({"prompt_logprobs": 20}, Prompts(1561, prompt_logprobs=20), 0, "prompt_logprobs"),
        ({"echo": True, "logprobs": 1}, Prompts(16_385, prompt_logprobs=1), 0, "echo"),
        ({"echo": True, "top_logprobs": 1, "stream": True}, Prompts(16_385, prompt_logprobs=1), 0, "echo"),
        ({"prompt_logprobs": 0, "echo": True}, Prompts(32_769, prompt_logprobs=0), 0, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, Prompts(33, prompt_logprobs=-1), 0, "prompt_logprobs"),
        ({"prompt_logprobs": 1}, Prompts(*[1024] * 16, prompt_logprobs=1), 16, None),
        ({"prompt_logprobs": 1}, Prompts(*[1024] * 17, prompt_logprobs=1), 16, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "n": 5}, Prompts(4_000, prompt_logprobs=1, n=5), 0, "prompt_logprobs"),
        ({}, Prompts(1_000_000), 1, None),
    ],
)
def test_log_probabilities_of_prompts_are_bounded_together(folder, path, body, prompts, handed_over, param):
    prompts.handed_over = 0
    answer = call(frontend(folder, prompts), path=path, key="acme-key", body={**PROMPT, **body})
    assert answer.status_code == (400 if param else 200)
    assert prompts.handed_over == handed_over
    if param:
        error = error_of(answer)
        assert (error["param"], "log probabilities of prompts" in error["message"]) == (param, True)


class Answers:
    """vLLM's server, as it passes a request to an engine whose answer may become 1,000 tokens long."""

    def __init__(self, asked: SamplingParams) -> None:
        self.asked = asked
        self.handed_over = asked

    async def __call__(self, scope, receive, send):
        self.handed_over = with_bounded_logprobs(self.asked, 1000)
        await echo(scope, receive, send)


@pytest.mark.parametrize("length", [128_000, None])
@pytest.mark.parametrize(
    ("path", "body", "params", "longest"),
    [
        ("/v1/chat/completions", {"top_logprobs": 20}, {"logprobs": 20}, 2**17 // 21),
        ("/v1/chat/completions", {"top_logprobs": 5, "prompt": ["a"] * 4}, {"logprobs": 5}, 2**17 // 24),
        ("/v1/chat/completions", {"logprob_token_ids": [1, 2, 3]}, {"logprob_token_ids": [1, 2, 3]}, 2**15),
        ("/v1/chat/completions", {"top_logprobs": 20, "max_output_tokens": 1}, {"logprobs": 20}, 2**17 // 21),
        ("/v1/responses", {"top_logprobs": 20, "max_tokens": 1}, {"logprobs": 20}, 2**17 // 21),
        ("/v1/responses", {"top_logprobs": 20, "max_tokens": -1, "stream": True}, {"logprobs": 20}, 2**17 // 21),
        ("/v1/chat/completions", {"top_logprobs": 20, "stream": True}, {"logprobs": 20}, None),
        ("/v1/chat/completions", {}, {}, None),
    ],
)
def test_an_answer_without_a_requested_length_ends_with_as_many(folder, path, body, params, longest, length):
    server = Answers(SamplingParams(max_tokens=length, **params))
    assert call(frontend(folder, server), path=path, key="acme-key", body={**PROMPT, **body}).is_success
    assert server.handed_over.max_tokens == (longest or length)
    assert server.asked.max_tokens == length


def test_an_answer_that_is_short_enough_ends_where_it_would(folder):
    server = Answers(SamplingParams(max_tokens=100, logprobs=20))
    call(frontend(folder, server), path="/v1/chat/completions", key="acme-key", body={**PROMPT, "top_logprobs": 20})
    assert server.handed_over is server.asked


@pytest.mark.parametrize(
    "body",
    [
        {"stream": True, "max_output_tokens": 100_000, "top_logprobs": 20},
        {"max_output_tokens": 100_000, "top_logprobs": 20, "logprobs": "nan"},
        {"max_output_tokens": 100_000, "top_logprobs": 20, "max_tokens": "nan"},
    ],
)
def test_nor_has_a_response_which_ends_in_one_piece_and_passes_over_other_routes_fields(folder, body):
    refused = call(frontend(folder), path="/v1/responses", key="acme-key", body={"input": "hello", **body})
    assert refused.status_code == 400
    assert "log probabilities" in error_of(refused)["message"]


def test_where_no_frontend_is_they_are_not():
    asked = SamplingParams(logprobs=20, max_tokens=10**6)
    assert with_bounded_logprobs(asked, 1000) is asked
    asyncio.run(bound_prompt_logprobs({"prompt_token_ids": [1] * 10**6}, SamplingParams(prompt_logprobs=20), 1000))


@pytest.mark.parametrize("value", [2**63, -(2**64), 2**70])
def test_a_number_that_vllm_can_not_pass_on_is_named(folder, value):
    refused = call(frontend(folder), key="acme-key", body={**PROMPT, "top_k": value})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "top_k")
    assert body_seen(call(frontend(folder), key="acme-key", body={**PROMPT, "seed": 2**63 - 1}))["seed"] == 2**63 - 1


@pytest.mark.parametrize("value", [str(2**63), "-" + "9" * 30, "\xa0" + str(2**70)])
def test_so_is_one_in_a_header(folder, value):
    refused = call(frontend(folder), key="acme-key", body=PROMPT, headers={"X-Vllm-Priority": value})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "x-vllm-priority")
