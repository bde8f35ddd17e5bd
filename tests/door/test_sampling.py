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
