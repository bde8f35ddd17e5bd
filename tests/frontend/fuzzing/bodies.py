"""Bodies that are hard to read or expensive to serve: drawn by Hypothesis, for each route that reads one."""

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from bench.attacks.forge.bodies import usual_bodies
from bench.attacks.forge.forging import mostly

Body = tuple[str, Mapping[str, str], bytes]
"""A path, headers that describe the body, and the body."""
_JSON = {"Content-Type": "application/json"}
_NUMBERS = (0, -1, 2**31, 2**63, 2**64, 10**400, float("inf"), float("nan"), -0.0, 1e308)
_TEXTS = ("", "\x00", "\ud800", "\\ud800", "a" * 5000, "\u2028", "{{ 1 }}", "[" * 200, '{"a":' * 200)


def hard_bodies(model: str) -> st.SearchStrategy[Body]:
    """Bodies of every known kind; some of them are served."""
    usual = usual_bodies(model)
    asked = st.sampled_from(sorted(usual)).flatmap(
        lambda path: st.tuples(st.just(path), _written(usual[path], _fields(model)))
    )
    plain = asked.map(lambda it: (it[0], _JSON, it[1]))
    return mostly(plain, st.builds(_compressed, asked, st.sampled_from(sorted(_ENCODINGS))), _of_other_types(asked))


def _fields(model: str) -> st.SearchStrategy[dict[str, Any]]:
    """Fields to add to a body: expensive ones, and some of a wrong type."""
    dear = st.sampled_from(sorted(_DEAR)).flatmap(
        lambda name: st.sampled_from(_DEAR[name]).map(lambda value: {name: value})
    )
    several = st.lists(dear, min_size=1, max_size=3).map(
        lambda fields: {k: v for each in fields for k, v in each.items()}
    )
    wrong = st.dictionaries(
        st.sampled_from([*_DEAR, "model", "prompt", "messages", "input", "max_tokens", "temperature"]),
        _values(),
        min_size=1,
        max_size=3,
    )
    return st.one_of(st.just({}), several, several, wrong, st.builds(_nested_field, _NESTED_IN, st.integers(20, 4000)))


def _values() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(_NUMBERS), st.sampled_from(_TEXTS))
    return st.recursive(
        leaves,
        lambda of: st.one_of(st.lists(of, max_size=3), st.dictionaries(st.text(max_size=6), of, max_size=3)),
        max_leaves=6,
    )


def _schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def _tools(count: int, schema: object) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": f"f{number}", "parameters": schema}} for number in range(count)]


_MESSAGE = {"role": "user", "content": "hello"}
_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}
_DEAR: Mapping[str, tuple[Any, ...]] = {
    "stream": (True,),
    "max_tokens": (1, 16, 60),
    "n": (1, 3, 16, 64, 10**6),
    "best_of": (2, 64),
    "logprobs": (True, 1, 20),
    "top_logprobs": (1, 20),
    "prompt_logprobs": (0, 5, 20),
    "echo": (True,),
    "ignore_eos": (True,),
    "stop": ("a", ["b" * 40] * 60, ["c"] * 4000, ""),
    "bad_words": (["once"], ["a b c"] * 500),
    "logit_bias": ({"5": 1.5}, {str(number): 1 for number in range(1000)}, {"-1": 1}, {"99999999": 1}),
    "allowed_token_ids": ([1, 2, 3], list(range(1000)), [-1], [10**9]),
    "stop_token_ids": ([1], list(range(60)), [-5]),
    "structured_outputs": (
        {"choice": ["yes", "no"]},
        {"regex": "[0-9]{3}"},
        {"regex": "(a*)*b"},
        {"regex": "("},
        {"json": _schema(3)},
        {"json": _schema(100)},
        {"json": '{"type": "string", "pattern": "^a{1,900}$"}'},
        {"grammar": 'root ::= "a" root | "b"'},
        {"grammar": "root ::= root"},
        {"choice": [f"c{number}" for number in range(800)]},
        {},
    ),
    "response_format": (
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": _schema(5)}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": _schema(200)}},
        {"type": "structural_tag", "structures": [], "triggers": []},
    ),
    "tools": (_tools(1, _schema(2)), _tools(200, _schema(3)), _tools(1, _schema(150)), [{}], [None]),
    "tool_choice": ("auto", "required", "none", {"type": "function", "function": {"name": "f0"}}, "no such"),
    "prompt": (
        "word " * 3000,
        "x" * 400_000,
        [1] * 3000,
        list(range(100)) * 1000,
        [[1, 2, 3]] * 40,
        ["hello"] * 100,
        [],
        [""],
        "\ufffd\u200b\U0001f600" * 2000,
    ),
    "messages": (
        [_MESSAGE] * 200,
        [_MESSAGE] * 5000,
        [],
        [{"role": "tool", "content": "x", "tool_call_id": "1"}],
        [{"role": "assistant", "tool_calls": [_CALL]}],
        [{"role": "user", "content": [{"type": "text", "text": "hello"}] * 900}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}],
        [{"role": "user", "content": "x" * 300_000}],
        [{"role": "unknown", "content": None}],
    ),
    "input": ("hello", [_MESSAGE] * 300, [{}] * 3000, "x" * 300_000, [{"type": "reasoning", "id": "r", "summary": []}]),
    "cache_salt": ("mine", "", 5),
    "vllm_xargs": ({}, {"a": 1}, {"a": [1] * 50}, {"tenantzone_seal": "1.YWNtZQ==.0.0.00"}),
    "chat_template": ("{{ messages }}", "{% for"),
    "chat_template_kwargs": ({"enable_thinking": False}, {"messages": []}, {"tokenize": 1}),
    "documents": ([{"title": "a", "text": "b"}] * 50,),
    "priority": (0, 5, -5),
    "truncate_prompt_tokens": (-1, 0, 10, 10**9),
    "min_tokens": (0, 5, 10**6),
    "repetition_penalty": (1.5, 0, -1),
    "use_beam_search": (True,),
    "length_penalty": (0.0, -3.0),
    "stream_options": ({"include_usage": True, "continuous_usage_stats": True}, {}, {"stream_interval": 5}),
    "tokens": ([1, 2, 3], list(range(5000)), [-1], [10**9], ["a"]),
}  # fmt: skip
"""Values of fields that make a request expensive, or that break an assumption of some part of the server."""
_NESTED_IN = st.sampled_from(["prompt", "messages", "tools", "vllm_xargs", "response_format", "metadata", "anything"])


def _nested_field(name: str, depth: int) -> dict[str, Any]:
    # As a text: json.dumps itself would not write such a deep value.
    return {name: _Literal("[" * depth + "]" * depth if depth % 2 else '{"a":' * depth + "1" + "}" * depth)}


class _Literal(str):
    """JSON that is put into a body unchanged."""


def _dump(fields: Mapping[str, Any]) -> str:
    members = [
        f"{json.dumps(name)}: {value if isinstance(value, _Literal) else json.dumps(value)}"
        for name, value in fields.items()
    ]
    return "{" + ", ".join(members) + "}"


def _written(body: dict[str, Any], fields: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    whole = fields.map(lambda more: _dump({**body, **more}).encode("utf-8", "surrogatepass"))
    return mostly(whole, st.builds(_spoilt, whole, st.sampled_from(_SPOILS), st.floats(0, 1)))


_SPOILS: tuple[Callable[[bytes, int], bytes], ...] = (
    lambda text, at: text[:at],
    lambda text, at: text[:at] + b"\xff\xfe" + text[at:],
    lambda text, at: text[:at] + b"\x00" + text[at:],
    lambda text, at: text + text,
    lambda text, at: b"[" + text + b"]",
    lambda text, at: text[:-1] + b"," + text[1:],
    lambda text, at: text[:-1] + b', "model": NaN, "temperature": -Infinity}',
    lambda text, at: text.decode("utf-8", "replace").encode("utf-16"),
    lambda text, at: b"\xef\xbb\xbf" + text,
    lambda text, at: b"9" * 5000,
    lambda text, at: b"",
)
"""Functions that each damage a body in one way, some of them at a given place."""


def _spoilt(text: bytes, spoil: Callable[[bytes, int], bytes], where: float) -> bytes:
    return spoil(text, int(len(text) * where))


_ENCODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, mtime=0),
    "deflate": zlib.compress,
    "br": lambda body: body,
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body, mtime=0), mtime=0),
    "identity": lambda body: body,
}


def _compressed(asked: tuple[str, bytes], encoding: str) -> Body:
    path, body = asked
    return path, {**_JSON, "Content-Encoding": encoding}, _ENCODINGS[encoding](body)


def _of_other_types(asked: st.SearchStrategy[tuple[str, bytes]]) -> st.SearchStrategy[Body]:
    types = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "a/b/c; ;=")
    return st.builds(lambda it, given: (it[0], {"Content-Type": given}, it[1]), asked, st.sampled_from(types))
