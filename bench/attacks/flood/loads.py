"""The loads of the flood's attacker: pathological loads, each with a plain load of about the same work."""

import math
import random
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.end_to_end.model import LONGEST

MOST_QUEUED = 200
"""Maximum number of waiting requests of the attacker's zone."""
_TOO_LONG = 128_000
"""Length of a prompt in tokens that far exceeds the model's maximum."""
_PROMPTS_OF_A_REQUEST = 100
_AT_ONCE = 16
_AS_MANY_AS_WAIT = 192
"""Number of concurrent short requests, below the limit of the attacker's queue."""

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """A load that the attacker sends."""

    name: str
    body: Callable[[random.Random], Body]
    at_once: int = _AT_ONCE
    most: int | None = None
    """Maximum number of requests; None for as many as the time allows."""
    is_aborted: bool = False
    """Whether each request is a stream that the attacker closes after the first piece."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pathological load, and the plain load that it is compared with."""

    plain: Load
    """Load without pathology, with about the same work for the engine."""
    pathological: Load


def pairs(queued: int, aborted: int) -> tuple[Pair, ...]:
    """Returns the pathological loads, each with its plain load.

    Args:
        queued: the number of requests that should wait at the same time.
        aborted: the number of streams that the attacker closes after the first piece.
    """
    many = math.ceil(queued / _PROMPTS_OF_A_REQUEST)
    return (
        Pair(
            _short("one prompt each", tokens=16),
            Load(
                f"{queued:,} queued",
                lambda rng: asking([prompt_of(rng, 128) for _ in range(_PROMPTS_OF_A_REQUEST)], 16),
                at_once=many,
                most=many,
            ),
        ),
        Pair(
            _short("prompts of 128 tokens"),
            Load(f"prompts of {LONGEST - 2:,} tokens", lambda rng: asking(prompt_of(rng, LONGEST - 2), 1)),
        ),
        Pair(
            _short("prompts of 128 tokens"),
            Load(f"prompts of {_TOO_LONG:,} tokens", lambda rng: asking(prompt_of(rng, _TOO_LONG), 1)),
        ),
        Pair(
            _short("prompts of 128 tokens"),
            Load("busts of the cache", lambda rng: asking(prompt_of(rng, 1024), 1)),
        ),
        Pair(
            Load(f"{aborted:,} streams", _stream, most=aborted),
            Load(f"{aborted:,} aborted streams", _stream, most=aborted, is_aborted=True),
        ),
        Pair(
            Load("no grammar", lambda rng: asking(f"hello {rng.random()}", 1)),
            Load(
                "grammars",
                lambda rng: {**asking(f"hello {rng.random()}", 1), "structured_outputs": _grammar(rng)},
            ),
        ),
    )


def _short(name: str, tokens: int = 1) -> Load:
    """Returns a load of single short prompts, with almost as many at once as the attacker's queue allows."""
    return Load(name, lambda rng: asking(prompt_of(rng, 128), tokens), at_once=_AS_MANY_AS_WAIT)


def _stream(rng: random.Random) -> Body:
    return {**asking(prompt_of(rng, 128), 64), "stream": True}


def asking(prompt: str | list[str], tokens: int) -> dict[str, Any]:
    """Returns the body of a request for ``tokens`` tokens."""
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def prompt_of(rng: random.Random, tokens: int) -> str:
    """Returns a prompt of the tiny model's tokens; each token is one byte."""
    return "".join(rng.choices(string.ascii_letters, k=tokens))


def _grammar(rng: random.Random) -> Body:
    """Returns a random grammar that is expensive to compile and differs in each call."""
    salt = rng.randrange(10**9)
    kinds: tuple[Body, ...] = (
        {"choice": [f"{salt} {number:x}" for number in range(3000)]},
        {"regex": f"(a|b){{1,900}}{salt}"},
        {"json": {"type": "object", "properties": {f"p{salt}{number}": {"type": "integer"} for number in range(1000)}}},
    )
    return rng.choice(kinds)
