"""What a request may have the engine do with each token."""

import pytest
from vllm.sampling_params import RepetitionDetectionParams
from vllm.v1.core.sched.utils import check_sequence_repetition

from tenantzone_runtime.door.sampling import LONGEST
from tests.door.harness import PROMPT, body_seen, call, door, error_of

ROUTES = ["/v1/completions", "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/responses", "/v1/messages"]


def members(field: str, count: int) -> object:
    return {str(token): 1.0 for token in range(count)} if field == "logit_bias" else list(range(count))


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("field", LONGEST)
def test_lists_of_tokens_are_bounded(folder, path, field):
    app = door(folder)
    longest = {**PROMPT, field: members(field, LONGEST[field])}
    assert body_seen(call(app, path=path, key="acme-key", body=longest))[field] == longest[field]
    refused = call(app, path=path, key="acme-key", body={**PROMPT, field: members(field, LONGEST[field] + 1)})
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
    seen = body_seen(call(door(folder), key="acme-key", body={**PROMPT, "repetition_detection": wanted}))
    assert seen["repetition_detection"] == wanted


@pytest.mark.parametrize("wanted", FAR)
def test_repetition_is_not_looked_for_far_back(folder, wanted):
    refused = call(door(folder), key="acme-key", body={**PROMPT, "repetition_detection": wanted})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "repetition_detection")


class Counted(list):
    """Counts how often one of its members was looked at."""

    looks = 0

    def __getitem__(self, index):
        self.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("wanted", [each for each in USUAL if each and each["max_pattern_size"]])
def test_what_is_let_through_costs_a_step_little_with_the_worst_of_answers(wanted):
    """One token that differs, as far back as makes each length be compared whole: without a bound 10 s for a token."""
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
    ],
)
def test_an_answer_in_one_piece_has_not_too_many_log_probabilities(folder, body, param):
    """The first one kept vLLM's event loop for a minute."""
    refused = call(door(folder), key="acme-key", body={**PROMPT, **body})
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
    body_seen(call(door(folder), key="acme-key", body={**PROMPT, **body}))


@pytest.mark.parametrize("value", [2**63, -(2**64), 2**70])
def test_a_number_that_vllm_can_not_pass_on_is_named(folder, value):
    refused = call(door(folder), key="acme-key", body={**PROMPT, "top_k": value})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "top_k")
    assert body_seen(call(door(folder), key="acme-key", body={**PROMPT, "seed": 2**63 - 1}))["seed"] == 2**63 - 1


@pytest.mark.parametrize("value", [str(2**63), "-" + "9" * 30, "\xa0" + str(2**70)])
def test_so_is_one_in_a_header(folder, value):
    refused = call(door(folder), key="acme-key", body=PROMPT, headers={"X-Vllm-Priority": value})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "x-vllm-priority")
