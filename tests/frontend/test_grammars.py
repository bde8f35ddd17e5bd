"""What a request may demand of its answer's form."""

import json
import subprocess
import sys

import pytest

from tenantzone_runtime.frontend.body.grammars import MAX_REPETITIONS_SQUARED
from tenantzone_runtime.settings import Bounds
from tests.frontend.harness import PROMPT, body_seen, call, error_of, frontend

LIMIT = Bounds().max_grammar_bytes


def schema(**fields):
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", **fields}}}


def patterns(number: int, repetition: str):
    return {
        "properties": {f"p{index}": {"type": "string", "pattern": f"^[a-z]{repetition}$"} for index in range(number)}
    }


TOO_LARGE = [
    ("/v1/completions", "response_format", schema(description="a" * LIMIT)),
    ("/v1/completions", "structured_outputs", {"choice": [f"w{number}" for number in range(50_000)]}),
    ("/v1/completions", "structured_outputs", {"regex": "a" * LIMIT}),
    ("/v1/completions", "structured_outputs", {"grammar": "root ::= " + "a " * LIMIT}),
    ("/v1/completions", "guided_json", {"description": "a" * LIMIT}),
    ("/v1/completions", "guided_regex", "a" * (LIMIT + 1)),
    ("/v1/chat/completions", "tools", [{"type": "function", "function": {"parameters": {"a": "b" * LIMIT}}}]),
    ("/v1/responses", "text", {"format": {"type": "json_schema", "schema": {"a": "b" * LIMIT}}}),
    ("/v1/messages", "output_format", {"type": "json_schema", "schema": {"a": "b" * LIMIT}}),
]
TOO_MANY = [
    {"json": patterns(70, "{1,500}")},
    {"json": patterns(1, "{1,1001}")},
    {"json": patterns(1, "{1001}")},
    {"json": patterns(1, "{1001,}")},
    {"json": patterns(1, "{ 1 , 5000 }")},
    {"json": json.dumps(patterns(70, "{,500}"))},
    {"json": json.dumps(patterns(70, "X")).replace("X", "\\u007b1,500}")},
    {"regex": "a{" + "9" * 4000 + "}"},
    {"json": {"patternProperties": {"^a{2000}$": {}}}},
]


@pytest.mark.parametrize(("path", "field", "value"), TOO_LARGE)
def test_what_is_too_large_is_named(folder, path, field, value):
    error = error_of(call(frontend(folder), path=path, body=PROMPT | {field: value}, key="acme-key"))
    assert (error["code"], error["param"]) == (400, field)
    assert f"'{field}' is larger than {LIMIT} bytes" in error["message"]


@pytest.mark.parametrize("value", TOO_MANY)
def test_what_repeats_too_often_is_named(folder, value):
    error = error_of(call(frontend(folder), body=PROMPT | {"structured_outputs": value}, key="acme-key"))
    assert (error["code"], error["param"]) == (400, "structured_outputs")
    assert str(MAX_REPETITIONS_SQUARED) in error["message"]


LARGE = "a?" * (LIMIT // 16) + "b"
"""A pattern that is over the limit for patterns, and smaller than a field."""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("structured_outputs", {"regex": LARGE}),
        ("structured_outputs", {"regex": "(a?b?){0,30}" * 600}),
        ("structured_outputs", {"grammar": "root ::= " + '"a"? ' * 2000}),
        ("structured_outputs", {"json": {"type": "string", "pattern": LARGE}}),
        ("structured_outputs", {"json": json.dumps({"type": "string", "pattern": LARGE})}),
        ("structured_outputs", {"json": {"patternProperties": {LARGE: {}}}}),
        ("structured_outputs", {"structural_tag": json.dumps({"format": {"type": "regex", "pattern": LARGE}})}),
        ("structured_outputs", {"json": {"properties": {f"p{n}": {"pattern": "a?" * 100} for n in range(50)}}}),
        ("response_format", schema(pattern=LARGE)),
        ("guided_regex", LARGE),
        ("guided_grammar", LARGE),
        ("tools", [{"type": "function", "function": {"parameters": {"properties": {"p": {"pattern": LARGE}}}}}]),
    ],
)
def test_patterns_are_bounded_more_narrowly(folder, field, value):
    error = error_of(call(frontend(folder), body=PROMPT | {field: value}, key="acme-key"))
    assert (error["code"], error["param"]) == (400, field)


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"regex": LARGE[1 - LIMIT // 8 :]}},
        {"structured_outputs": {"regex": "(a?b?){0,30}" * 200}},
        {"structured_outputs": {"structural_tag": json.dumps({"schema": {"description": "a" * (LIMIT // 2)}})}},
        {"tools": [{"function": {"description": "a? {1,5} " * 500 + "a? " * 10_000}}]},
        {"response_format": schema(properties={"pattern": {"description": "a" * (LIMIT // 2)}})},
        {"response_format": schema(**patterns(100, "{1,64}"))},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": [f"choice {number}" for number in range(2000)]}},
        {"structured_outputs": {"regex": "[0-9]{3}-[a-f]{4}"}},
        {"structured_outputs": {"json": patterns(1, "{1,1000}")}},
        {"tools": [], "text": None, "guided_json": 5},
    ],
)
def test_what_people_ask_for_passes(folder, fields):
    seen = body_seen(call(frontend(folder), body=PROMPT | fields, key="acme-key"))
    assert {name: seen[name] for name in fields} == fields


BLANKS = " " * 20_000
LOOK = """
import sys
from tenantzone_runtime.frontend.body.grammars import check_grammars
check_grammars({"structured_outputs": {"regex": sys.stdin.read()}}, 2**16)
"""


@pytest.mark.parametrize(
    "text",
    ["{" + BLANKS + "," + BLANKS, "{1" + BLANKS + ",2" + BLANKS, "{" * 20_000 + "," + BLANKS, "{" + "1" * 30_000],
    ids=["blanks", "digits", "braces", "a long count"],
)
def test_what_only_begins_like_a_repetition_is_looked_at_once(text):
    # In another process: trying each way to divide the blanks would take hours and block this one.
    subprocess.run([sys.executable, "-c", LOOK], input=text, text=True, timeout=120, check=True)


def test_blanks_hide_no_repetition(folder):
    for count in ("{%s1 , %s5000%s}", "{%s5000%s,%s}"):
        error = error_of(
            call(frontend(folder), body=PROMPT | {"guided_regex": "a" + count.replace("%s", " " * 100)}, key="acme-key")
        )
        assert (error["code"], error["param"]) == (400, "guided_regex")
