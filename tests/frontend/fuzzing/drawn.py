"""The requests of the fuzzer's clients: from several sources, and how each is sent. Equal seeds give equal batches.

Drawing a request from the server's description takes a tenth of a second. So a run draws a pool once, and most requests
combine parts of two bodies of the pool.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from bench.attacks.forge.described import draw_described
from bench.attacks.forge.forging import Forged, Forger, draw, forge, on_the_wire
from tenantzone_runtime.frontend.body.values import MAX_DEPTH, nests_deeper
from tests.frontend.fuzzing.bodies import Body, hard_bodies
from tests.frontend.fuzzing.measured import NUMBER_HEADER

MODEL = "tiny"
ZONES = ("acme", "burst", "tight")
"""Tenants with a zone."""
KEYS: Mapping[str, Mapping[str, str]] = {
    **{tenant: {"Authorization": f"Bearer key-of-{tenant}"} for tenant in (*ZONES, "stranger", "unknown")},
    "by another header": {"x-api-key": "key-of-acme"},
    "none": {},
}
"""Headers of tenants with a zone, of one without, of a key that belongs to no tenant, and no key."""
_MOSTLY_SERVED = (*ZONES * 4, *KEYS)
_FORGED = _HARD = 0.2
"""Shares of a batch; the rest is mixed."""
_MOST_MIXED = 3
"""The most fields of one body that are put into another."""
_JSON = {"Content-Type": "application/json"}
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_TOKENS = 16
"""The answer's length if a request gives none: the model's longest answers take minutes, as if they hung."""
_LONGEST_HANG_UP = 2000
"""The most bytes of an answer that a client reads before it hangs up."""


@dataclass(frozen=True, slots=True)
class Sending:
    """One request, and how a client sends it."""

    number: str
    """The numbers of the seed, of the batch, and of the request."""
    parts: tuple[bytes, ...]
    """Parts that are sent one after another."""
    reads: int | None = None
    """Bytes of the answer after which the client hangs up; None: it reads all."""
    breaks_off: bool = False
    """Whether the connection is reset instead of closed in order."""

    @property
    def request(self) -> bytes:
        return b"".join(self.parts)


@dataclass(frozen=True, slots=True)
class Pool:
    """The initial requests of a run."""

    requests: list[Forged]
    bodies: list[tuple[str, dict[str, Any]]]
    """Paths and the objects that requests send there."""


def draw_pool(description: dict[str, Any], seed: int, count: int) -> Pool:
    """Draws about ``count`` requests, a third of them from the server's description.

    Args:
        description: the server's OpenAPI description.
        seed: the seed of the whole run.
        count: the number of requests.
    """
    rng = random.Random(f"pool {seed}")
    who = KEYS[rng.choice(ZONES)]
    requests = [
        *draw_described(description, who, count // 3, rng.randrange(2**32)),
        *_forged(rng, count // 3),
        *_hard(rng, count // 3),
    ]
    bodies = [body for request in requests if (body := _body_of(request.sent)) is not None]
    return Pool(requests, bodies)


def first_batch(pool: Pool, seed: int) -> list[Sending]:
    """The pool's requests in a random order."""
    return _sendings(pool.requests, seed, 0)


def draw_batch(pool: Pool, seed: int, batch: int, count: int) -> list[Sending]:
    """Draws ``count`` requests.

    Args:
        pool: the pool of the same seed.
        seed: the seed of the whole run.
        batch: the number of the run's batch, from 1 on.
        count: the number of requests.
    """
    rng = random.Random(f"batch {seed} {batch}")
    requests = [*_forged(rng, int(count * _FORGED)), *_hard(rng, int(count * _HARD))]
    requests += [_mixed(pool, rng) for _ in range(count - len(requests))]
    return _sendings(requests, seed, batch)


def _forged(rng: random.Random, count: int) -> list[Forged]:
    who = rng.choice(_MOSTLY_SERVED)
    victims = tuple(each for each in ZONES if each != who)
    return forge(Forger(MODEL, KEYS[who], victims), count, rng.randrange(2**32))


def _hard(rng: random.Random, count: int) -> list[Forged]:
    hard = st.tuples(st.sampled_from(_MOSTLY_SERVED), hard_bodies(MODEL)).map(_on_the_wire)
    return [Forged(request) for request in draw(hard, count, rng.randrange(2**32))]


def _on_the_wire(asked: tuple[str, Body]) -> bytes:
    who, (path, headers, body) = asked
    return on_the_wire("POST", path, {**KEYS[who], **headers}, body)


def _mixed(pool: Pool, rng: random.Random) -> Forged:
    """A body of the pool with some fields of another, or with a field's value moved to another place."""
    path, body = rng.choice(pool.bodies)
    _, other = rng.choice(pool.bodies)
    names = rng.sample(sorted(other), min(len(other), rng.randint(1, _MOST_MIXED)))
    mixed = {**body, **{name: other[name] for name in names}}
    if names and body and rng.random() < 0.3:
        mixed[rng.choice(sorted(body))] = other[names[0]]
    if rng.random() < 0.7:
        # Most bodies of the pool are for another model, or for none.
        mixed["model"] = MODEL
    mixed |= {name: _TOKENS for name in _LENGTHS if mixed.get(name) is None}
    text = json.dumps(mixed).encode("utf-8", "surrogatepass")
    return Forged(on_the_wire("POST", path, {**KEYS[rng.choice(_MOSTLY_SERVED)], **_JSON}, text))


def _body_of(request: bytes) -> tuple[str, dict[str, Any]] | None:
    """The path of a request, and the object in its body; None: it has none, or one too deep to be written again."""
    head, _, body = request.partition(b"\r\n\r\n")
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    path = head.split(b" ", 2)[1].decode("latin-1")
    return (path, parsed) if isinstance(parsed, dict) and not nests_deeper(parsed, MAX_DEPTH) else None


def _sendings(requests: list[Forged], seed: int, batch: int) -> list[Sending]:
    rng = random.Random(f"sending {seed} {batch}")
    shuffled = rng.sample(requests, len(requests))
    return [_sending(f"{seed}.{batch}.{place}", each, rng) for place, each in enumerate(shuffled)]


def _sending(number: str, forged: Forged, rng: random.Random) -> Sending:
    line, separator, rest = forged.sent.partition(b"\r\n")
    request = line + separator + NUMBER_HEADER + f": {number}".encode() + separator + rest
    way = rng.random()
    if way < 0.7:
        return Sending(number, (request,), 0 if forged.leaves else None)
    if way < 0.85:
        return Sending(number, _divided(request, rng))
    if way < 0.92:  # It hangs up while it sends.
        return Sending(number, _divided(request[: rng.randint(1, len(request))], rng), 0, rng.random() < 0.5)
    return Sending(number, (request,), rng.randrange(_LONGEST_HANG_UP), rng.random() < 0.5)


def _divided(request: bytes, rng: random.Random) -> tuple[bytes, ...]:
    cuts = [rng.randrange(len(request)) for _ in range(rng.randint(1, 6))]
    return tuple(request[begin:end] for begin, end in pairwise(sorted({0, *cuts, len(request)})))
