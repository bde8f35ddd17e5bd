"""Texts for parsers, drawn by Hypothesis: empty ones, unexpected JSON, and damaged valid ones."""

import json
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = {"deep": 10_000, "quick": 20}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 200)
"""Examples for each parser."""
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

_NUMBERS = (2**53 + 1, 2**63, 2**64, -1, 10**400, 0.5, 1e308, float("inf"), float("nan"), -0.0)
_TEXTS = ("", "\x00", "\ud800", "\u2028", "a" * 5000, "../..", "100%", "-1", "sha256:", "1970-01-01T00:00:00Z")
_DEPTH = 100_000


def values() -> st.SearchStrategy[Any]:
    """Values of JSON, and some that only Python's JSON has."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(_NUMBERS),
        st.text(),
        st.sampled_from(_TEXTS),
    )
    return st.recursive(
        leaves,
        lambda of: st.one_of(st.lists(of, max_size=4), st.dictionaries(st.text(max_size=9), of, max_size=4)),
        max_leaves=12,
    )


def texts(*good: str) -> st.SearchStrategy[bytes]:
    """Any content of a file, including these valid texts with a value, or bytes, replaced."""
    written = values().map(lambda value: json.dumps(value).encode())
    deep = st.sampled_from([b"[" * _DEPTH, b'{"a":' * _DEPTH, b"[" * _DEPTH + b"]" * _DEPTH, b"9" * _DEPTH])
    replaced = st.builds(_replaced, st.sampled_from(good), st.randoms(use_true_random=False), values())
    damaged = st.builds(
        _damaged,
        st.one_of(st.sampled_from(good).map(str.encode), replaced),
        st.randoms(use_true_random=False),
        st.binary(max_size=9),
    )
    return st.one_of(st.binary(max_size=200), written, deep, replaced, replaced, damaged)


def _replaced(text: str, rng: Any, value: Any) -> bytes:
    """A JSON text with one of its values, of any depth, replaced."""
    whole = json.loads(text)
    place = whole
    while True:
        names = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not names:
            return json.dumps(value).encode()
        name = rng.choice(names)
        if not isinstance(place[name], dict | list) or not place[name] or rng.random() < 0.3:
            place[name] = value
            return json.dumps(whole).encode()
        place = place[name]


def _damaged(text: bytes, rng: Any, bytes_in_between: bytes) -> bytes:
    begin = rng.randrange(len(text) + 1)
    end = rng.choice([begin, begin + 1, rng.randrange(begin, len(text) + 1)])
    return text[:begin] + bytes_in_between + text[end:]
