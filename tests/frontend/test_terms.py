"""What a zone's tenant may ask for in one request: the same on each route, and without effect on other zones."""

import json

import pytest

from tenantzone_contract.zone_config.config import CONFIG_KEY
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_runtime.frontend.routes import ROUTES, Access
from tests.frontend.harness import PROMPT, body_seen, call, error_of, frontend
from tests.runtime.folders import config, project, zone

SEALED = [route.path for route in ROUTES if route.access is Access.SEALED]
LIMITS = {
    "maxTokens": 100,
    "choices": 2,
    "logprobs": 3,
    "bodyBytes": 2000,
    "prompts": 3,
    "structuredOutputs": "Schemas",
}


@pytest.fixture
def asked(folder):
    """Sends a request as acme, whose zone has these terms; burst's has none."""

    def ask(body, path="/v1/completions", *, key="acme-key", headers=None, limits=LIMITS, priority=None):
        terms = {"requestLimits": limits, "requestPriority": priority or {}}
        project(folder / "config", {CONFIG_KEY: dump_config(config(2, zone("acme", **terms), zone("burst")))})
        return call(frontend(folder), path=path, body={**PROMPT, **body}, key=key, headers=headers)

    return ask


def assert_refused(response, param, status=400):
    assert response.status_code == status
    assert error_of(response)["param"] == param


BEYOND = [
    ({"max_tokens": 101}, "max_tokens"),
    ({"max_completion_tokens": 101}, "max_completion_tokens"),
    ({"max_output_tokens": 101}, "max_output_tokens"),
    ({"min_tokens": 101}, "min_tokens"),
    ({"max_tokens": 1, "max_completion_tokens": 10**15}, "max_completion_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 5.0}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"use_beam_search": True}, "max_tokens"),
    ({"n": 3}, "n"),
    ({"n": "2"}, "n"),
    ({"best_of": 3}, "best_of"),
    ({"top_logprobs": 4}, "top_logprobs"),
    ({"top_logprobs": -1}, "top_logprobs"),
    ({"prompt_logprobs": 4}, "prompt_logprobs"),
    ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ({"logprobs": 4}, "logprobs"),
    ({"logprob_token_ids": [1, 2, 3, 4]}, "logprob_token_ids"),
    ({"prompt": ["a"] * 4}, "prompt"),
    ({"prompt": [[1]] * 4}, "prompt"),
    ({"messages": [[{"role": "user", "content": "a"}]] * 4}, "messages"),
    ({"structured_outputs": {"regex": "a+"}}, "structured_outputs.regex"),
    ({"structured_outputs": {"grammar": "root ::= a"}}, "structured_outputs.grammar"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": " *"}}, "structured_outputs.whitespace_pattern"),
    ({"structured_outputs": {"json": {"items": {"pattern": "a"}}}}, "structured_outputs.json.items.pattern"),
    ({"structured_outputs": {"json": '{"patternProperties": {"a": {}}}'}}, "structured_outputs.json.patternProperties"),
    ({"guided_regex": "a"}, "guided_regex"),
    ({"guided_grammar": "root ::= a"}, "guided_grammar"),
    ({"guided_json": '{"pattern": "a"}'}, "guided_json.pattern"),
    ({"response_format": {"type": "structural_tag", "format": {}}}, "response_format.type"),
    ({"response_format": {"json_schema": {"schema": {"pattern": "a"}}}}, "response_format.json_schema.schema.pattern"),
    ({"tools": [{"function": {"parameters": {"pattern": "a"}}}]}, "tools.0.function.parameters.pattern"),
    ({"text": {"format": {"schema": {"anyOf": [{}, {"pattern": "a"}]}}}}, "text.format.schema.anyOf.1.pattern"),
    ({"output_format": {"schema": {"pattern": "a"}}}, "output_format.schema.pattern"),
    ({"output_config": {"format": {"schema": {"pattern": "a"}}}}, "output_config.format.schema.pattern"),
]


@pytest.mark.parametrize("path", SEALED)
@pytest.mark.parametrize(("body", "field"), BEYOND, ids=str)
def test_what_is_beyond_a_bound_is_refused_with_the_fields_name(asked, path, body, field):
    assert_refused(asked(body, path), field)


@pytest.mark.parametrize(
    "form",
    [
        {"structured_outputs": {"json": {"properties": {"pattern": {"type": "string"}, "regex": {"enum": ["a"]}}}}},
        {"structured_outputs": {"choice": ["regex", "grammar"]}},
        {"structured_outputs": {"json": "no schema", "regex": None}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "regex", "schema": {"type": "object"}}}},
        {"tools": [{"type": "function", "function": {"name": "pattern", "description": '{"pattern": "a"}'}}]},
    ],
)
def test_a_form_without_patterns_goes_on_as_it_came(asked, form):
    assert form.items() <= body_seen(asked(form)).items()
    assert asked({"structured_outputs": {"regex": "a+"}}, limits={"structuredOutputs": "Any"}).is_success


@pytest.mark.parametrize("path", SEALED)
def test_what_is_within_its_bounds_goes_on_as_it_came(asked, path):
    body = {"max_tokens": 100, "n": 2, "top_logprobs": 3, "prompt_logprobs": 0, "logprob_token_ids": [1, 2, 3]}
    assert body.items() <= body_seen(asked(body, path)).items()
    assert asked(dict.fromkeys(body), path).status_code == 200, "null says nothing"


# The log probabilities of a whole vocabulary are too many for any zone.
@pytest.mark.parametrize(("body", "field"), [each for each in BEYOND if each[0] != {"top_logprobs": -1}], ids=str)
def test_the_bounds_of_one_zone_are_not_anothers(asked, body, field):
    assert asked(body, key="burst-key").status_code == 200
    assert asked(body, limits={}).status_code == 200


def test_logprobs_say_whether_or_how_many_by_the_route(asked):
    assert asked({"logprobs": True}, "/v1/chat/completions", limits={"logprobs": 0}).status_code == 200
    # vLLM would take it for a 1.
    assert_refused(asked({"logprobs": True}, "/v1/completions", limits={"logprobs": 0}), "logprobs")
    assert asked({"logprobs": 0}, "/v1/completions", limits={"logprobs": 0}).status_code == 200
    assert_refused(asked({"logprobs": 1}, "/v1/completions", limits={"logprobs": 0}), "logprobs")


@pytest.mark.parametrize("path", [*SEALED, "/tokenize", "/detokenize", "/v1/messages/count_tokens"])
def test_a_body_is_bounded_by_its_zone(asked, path):
    size = 2000 - len(json.dumps({**PROMPT, "x": ""}))
    assert asked({"x": "a" * size}, path).status_code == 200
    refused = asked({"x": "a" * (size + 1)}, path)
    assert_refused(refused, None, 413)
    assert "2000 bytes" in error_of(refused)["message"]
    assert asked({"x": "a" * (size + 1)}, path, key="burst-key").status_code == 200


def test_a_zone_takes_no_larger_body_than_the_engine(asked):
    large = {"x": "a" * 2**20}
    assert_refused(asked(large, limits={"bodyBytes": 2**30}), None, 413)


@pytest.mark.parametrize("path", SEALED)
@pytest.mark.parametrize(
    ("range", "inside", "outside"),
    [
        ({"min": -2, "max": 5}, (-2, 0, 5, None), (-3, 6, "0", 1.0, True)),
        ({"min": 0}, (0, 10**12), (-1,)),
        ({"max": 0}, (0, -(10**12)), (1,)),
        ({}, (-7, 7, "7"), ()),
    ],
)
def test_a_priority_is_within_its_zones_range(asked, path, range, inside, outside):
    for value in inside:
        assert asked({"priority": value}, path, priority=range).status_code == 200
    for value in outside:
        assert_refused(asked({"priority": value}, path, priority=range), "priority")


@pytest.mark.parametrize("path", SEALED)
def test_a_priority_in_a_header_goes_before_the_bodys_and_is_bounded_as_well(asked, path):
    range = {"min": -2, "max": 5}
    for value in ("-2", "5", "urgent", ""):
        assert asked({"priority": 0}, path, priority=range, headers={"X-Vllm-Priority": value}).status_code == 200
    for value in ("-3", " -3 ", "6", "+6", "1_000", "5\n-3", "\xa0-3", "-3\x85"):
        refused = asked({"priority": 0}, path, priority=range, headers={"X-Vllm-Priority": value})
        assert_refused(refused, "x-vllm-priority")
    assert asked({}, path, headers={"X-Vllm-Priority": "-3"}).status_code == 200
