"""The bodies of forged requests: valid bodies with other tenants' names in any field, and malformed bodies."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tenantzone_runtime.seal import SEAL_ARGUMENT

_PROMPT = "Once upon a time there was a forger who sent the same words again and again. " * 2
_HUGE = 2**20 + 1
"""Number of bytes above the frontend's limit for a text."""
_FIELDS = (
    "cache_salt", "vllm_xargs", "user", "tenant", "zone", "metadata", "priority", "request_id", "kv_transfer_params",
    "kv_hints", "model", "prompt", "messages", "input", "stream", "stream_options", "logprobs", "prompt_logprobs",
    "top_logprobs", "echo", "seed", "stop", "bad_words", "logit_bias", "allowed_token_ids", "temperature", "top_p",
    "top_k", "min_tokens", "tools", "tool_choice", "response_format", "structured_outputs", "truncate_prompt_tokens",
    "chat_template_kwargs", "documents", "prompt_embeds", "suffix", "previous_response_id", "background", "store",
    "system", "reasoning", "include", "data_parallel_rank", "add_special_tokens", "mm_processor_kwargs", "n", "tokens",
)  # fmt: skip
_Write = Callable[[dict[str, Any], dict[str, Any]], str | bytes]
"""Function that serializes a body with additional fields."""


def asked_bodies(model: str, victims: Sequence[str]) -> st.SearchStrategy[tuple[str, bytes]]:
    """Returns a strategy for pairs of a path that reads a body, and a body."""
    values = _values(st.sampled_from(victims))
    fields = st.dictionaries(st.one_of(st.sampled_from(_FIELDS), st.text(max_size=8)), values, max_size=3)
    return st.sampled_from(sorted(usual_bodies(model).items())).flatmap(
        lambda asked: st.tuples(st.just(asked[0]), _written(asked[1], fields))
    )


def huge_bodies() -> st.SearchStrategy[tuple[str, bytes]]:
    """Returns a strategy for pairs of a path and a body that is too large."""
    bodies = (b" " * _HUGE, b'{"prompt": "' + b"a" * _HUGE + b'"}', b"[" * _HUGE, b'{"prompt": [' + b"1," * _HUGE)
    return st.tuples(st.sampled_from(sorted(usual_bodies(""))), st.sampled_from(bodies))


def usual_bodies(model: str) -> dict[str, dict[str, Any]]:
    """Returns a valid body, which takes little time to answer, for each route that reads a body."""
    messages = [{"role": "user", "content": _PROMPT}]
    return {
        "/v1/completions": {"model": model, "prompt": _PROMPT, "max_tokens": 1},
        "/v1/chat/completions": {"model": model, "messages": messages, "max_tokens": 1},
        "/v1/chat/completions/batch": {"model": model, "messages": [messages], "max_tokens": 1},
        "/v1/responses": {"model": model, "input": messages, "max_output_tokens": 1},
        "/v1/messages": {"model": model, "messages": messages, "max_tokens": 1},
        "/v1/messages/count_tokens": {"model": model, "messages": messages},
        "/tokenize": {"model": model, "prompt": _PROMPT},
        "/detokenize": {"model": model, "tokens": [1, 2, 3]},
    }


def _values(names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    sealed = names.map(lambda name: {SEAL_ARGUMENT: _forged_seal(name), "tenant": name})
    numbers = st.one_of(st.integers(-2, 8), st.sampled_from([2**31, 2**63, 2**64, 10**400, -(2**63)]), st.floats())
    hostile = st.sampled_from(["\ud800", "\x00", "a" * 129, "_" * 64, "../../etc", "{{ 7 * 7 }}", "%s%n"])
    texts = st.one_of(names, hostile, st.text(max_size=30))
    leaves = st.one_of(st.none(), st.booleans(), numbers, texts)
    return st.one_of(leaves, sealed, st.recursive(leaves, lambda of: _containers(texts, of), max_leaves=6))


def _forged_seal(tenant: str) -> str:
    """Returns a seal with an invalid proof, because only the frontend and the scheduler have the key."""
    return f"1.{base64.urlsafe_b64encode(tenant.encode()).decode()}.1700000000.{'0' * 16}.{'0' * 64}"


def _containers(names: st.SearchStrategy[str], of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(of, max_size=3), st.dictionaries(names, of, max_size=3))


def _written(body: dict[str, Any], fields: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    whole = st.builds(_write, st.just(body), fields, st.sampled_from(_WAYS_TO_WRITE))
    cut = st.tuples(whole, st.floats(0, 1)).map(lambda it: it[0][: int(len(it[0]) * it[1])])
    longer = st.tuples(whole, st.binary(min_size=1, max_size=20)).map(b"".join)
    nested = st.integers(1, 3000).map(lambda depth: b'{"prompt":' + b"[" * depth + b"]" * depth + b"}")
    broken = st.one_of(cut, longer, nested)
    return st.sampled_from(range(8)).flatmap(lambda number: whole if number else broken)


def _write(body: dict[str, Any], fields: dict[str, Any], write: _Write) -> bytes:
    text = write(body, fields)
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _twice(body: dict[str, Any], fields: dict[str, Any]) -> str:
    """Write each field before and after the body's own fields, because parsers differ in which duplicate counts."""
    inner, more = json.dumps(body)[1:-1], json.dumps(fields)[1:-1]
    return "{" + ", ".join(part for part in (more, inner, more) if part) + "}"


_WAYS_TO_WRITE: tuple[_Write, ...] = (
    lambda body, fields: json.dumps({**body, **fields}),
    lambda body, fields: json.dumps({**body, **fields}),
    lambda body, fields: json.dumps({**body, **fields}, ensure_ascii=False),
    _twice,
    _twice,
    lambda body, fields: json.dumps({**body, **fields}).encode("utf-16"),
    lambda body, fields: json.dumps({**body, **fields}).encode("utf-8-sig"),
    lambda body, fields: json.dumps([{**body, **fields}]),
)
