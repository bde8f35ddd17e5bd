"""How many engine requests one body makes, and that it can't be many."""

import pytest

from tenantzone_runtime.frontend.body.prompts import check_prompts
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.settings import Bounds
from tests.frontend.harness import call, error_of, frontend

MESSAGE = {"role": "user", "content": "hello"}


@pytest.mark.parametrize(
    ("body", "requests"),
    [
        ({}, 1),
        ({"prompt": "hello"}, 1),
        ({"prompt": []}, 1),
        ({"prompt": ["hello"] * 3}, 3),
        pytest.param({"prompt": [1] * 5000}, 1, id="one prompt of token ids"),
        ({"prompt": [[1, 2], [3]]}, 2),
        pytest.param({"prompt": [1, True, 3]}, 3, id="neither one prompt nor several"),
        ({"prompt": "hello", "n": 4}, 4),
        ({"prompt": ["hello"] * 3, "n": 4}, 12),
        ({"prompt": "hello", "best_of": 5, "n": 2}, 5),
        ({"prompt": "hello", "n": 0}, 1),
        ({"prompt": "hello", "n": -7}, 1),
        ({"prompt": "hello", "n": "7"}, 7),
        ({"prompt": "hello", "n": " 1_0.0 "}, 10),
        ({"prompt": "hello", "n": 7.0}, 7),
        ({"prompt": "hello", "n": "many"}, 1),
        ({"prompt": "hello", "n": "inf"}, 1),
        ({"prompt": "hello", "n": "nan"}, 1),
        ({"prompt_embeds": ["AAAA"] * 3}, 3),
        ({"prompt_embeds": ["AAAA"] * 3, "prompt": ["hello"] * 2}, 5),
        ({"prompt_embeds": "AAAA", "prompt": "hello"}, 2),
        ({"prompt_embeds": None, "prompt": "hello"}, 1),
        ({"input": "hello"}, 1),
        ({"input": ["hello"] * 3}, 3),
        pytest.param({"input": [1] * 5000}, 1, id="one text of token ids"),
        ({"input": [[1, 2], [3]]}, 2),
        ({"input": [MESSAGE] * 9}, 1),
        ({"input": [[MESSAGE] * 9] * 2}, 2),
        ({"messages": [MESSAGE] * 9}, 1),
        ({"messages": [[MESSAGE] * 9] * 2, "n": 2}, 4),
    ],
)
def test_each_prompt_counts_as_often_as_it_is_to_be_answered(body, requests):
    assert check_prompts(body, requests) == requests
    if requests > 1:
        with pytest.raises(Refusal):
            check_prompts(body, requests - 1)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": ["a"] * 129}, "prompt"),
        ("/v1/completions", {"prompt": [[1]] * 129}, "prompt"),
        ("/v1/completions", {"prompt": ["a", "b"], "n": 65}, "prompt"),
        ("/v1/completions", {"prompt": "a", "n": 129}, "n"),
        ("/v1/completions", {"prompt": "a", "n": "129"}, "n"),
        ("/v1/completions", {"prompt": ["a"] * 65, "prompt_embeds": ["AAAA"] * 64}, "prompt"),
        ("/v1/completions", {"prompt": "a", "best_of": 10**9}, "best_of"),
        ("/v1/completions", {"prompt_embeds": ["AAAA"] * 129}, "prompt_embeds"),
        ("/v1/chat/completions", {"messages": [MESSAGE], "n": 129}, "n"),
        ("/v1/chat/completions/batch", {"messages": [[MESSAGE]] * 129}, "messages"),
        ("/v1/embeddings", {"input": ["a"] * 129}, "input"),
        ("/pooling", {"input": [[1]] * 129}, "input"),
    ],
)
def test_what_comes_to_more_is_refused_and_says_by_which_field(folder, path, body, param):
    assert Bounds().max_prompts == 128
    error = error_of(call(frontend(folder), path=path, body=body, key="acme-key"))
    assert (error["code"], error["param"]) == (400, param)
    assert "more than 128; send several" in error["message"]


def test_a_conversation_may_be_long(folder):
    assert call(
        frontend(folder), path="/v1/chat/completions", body={"messages": [MESSAGE] * 500}, key="acme-key"
    ).is_success
