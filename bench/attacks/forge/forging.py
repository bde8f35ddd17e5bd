"""Forged requests, with which a client that has one tenant's key, or none, tries to act as another tenant.

Each request is the bytes to send on a connection. Hypothesis draws the requests; equal seeds give equal requests.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from bench.attacks.forge.bodies import asked_bodies, huge_bodies
from tenantzone_runtime.frontend.routes import ROUTES, WEBSOCKET

Drawn = TypeVar("Drawn")
_Message = tuple[str, bytes]
"""A path and a body."""
_Framing = Callable[[bytes], tuple[list[str], bytes]]
"""Function that returns framing headers and the body, which may contradict each other."""


@dataclass(frozen=True, slots=True)
class Forger:
    """The forging tenant, and the tenant whose requests it imitates."""

    model: str
    own: Mapping[str, str]
    """Headers that authenticate the forging tenant as itself."""
    victims: tuple[str, ...]
    """Names of the other tenants."""


@dataclass(frozen=True, slots=True)
class Forged:
    """One forged request."""

    sent: bytes
    leaves: bool = False
    """Whether the client disconnects right after sending."""


def forge(forger: Forger, count: int, seed_number: int) -> list[Forged]:
    """Draw up to ``count`` different forged requests; one in a hundred has a body of a megabyte."""
    huge = draw(_requests(forger, huge_bodies()), max(1, count // 100), seed_number)
    asked = mostly(asked_bodies(forger.model, forger.victims), _bodies_elsewhere(forger.model))
    return draw(_requests(forger, asked), count - len(huge), seed_number) + huge


def draw(strategy: st.SearchStrategy[Drawn], count: int, seed_number: int) -> list[Drawn]:
    """Draw ``count`` examples, or fewer if the strategy has not as many."""
    drawn: list[Drawn] = []

    @seed(seed_number)
    @settings(max_examples=count, database=None, phases=[Phase.generate], deadline=None, suppress_health_check=_CHECKS)
    @given(strategy)
    def note(example: Drawn) -> None:
        drawn.append(example)

    with suppress(Unsatisfiable):
        note()
    return drawn


_CHECKS = list(HealthCheck)


def mostly(usual: st.SearchStrategy[Drawn], *rare: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    """Returns a strategy that draws from the usual strategy, and in one of twelve cases from a rare one."""
    return st.sampled_from(range(12)).flatmap(lambda number: usual if number else st.one_of(rare))


def on_the_wire(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Returns a request with correct framing and the given parts, which are not checked."""
    lines = [f"{method} {target} HTTP/1.1", "Host: engine", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return _head(lines) + (body or b"")


def _head(lines: list[str]) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass")


def _requests(forger: Forger, messages: st.SearchStrategy[_Message]) -> st.SearchStrategy[Forged]:
    names = st.sampled_from(forger.victims)

    def assemble(
        method: str,
        message: _Message,
        turn: Callable[[str], str],
        headers: tuple[list[tuple[str, str]], ...],
        framing: _Framing,
        leaves: bool,
    ) -> Forged:
        path, body = message
        framed, content = framing(body)
        shown = [f"{name}: {value}" for name, value in chain(*headers)]
        lines = [f"{method} {turn(path)} HTTP/1.1", "Host: engine", *shown, *framed]
        return Forged(_head(lines) + content, leaves)

    return st.builds(
        assemble,
        method=mostly(st.just("POST"), st.sampled_from(["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "post"])),
        message=messages,
        turn=mostly(st.just(str), _turned_paths(names)),
        headers=st.tuples(_identities(forger.own, names), _CONTENT_TYPES, st.lists(_headers(names), max_size=3)),
        framing=mostly(st.just(_whole), st.just(_chunked), st.sampled_from(_WRONG_FRAMINGS)),
        leaves=mostly(st.just(False), st.booleans()),
    )


def _identities(own: Mapping[str, str], names: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Draws the forger's own headers, or imitations of another tenant's."""
    shown = list(own.items())
    key = next(iter(own.values()), "Bearer none").removeprefix("Bearer ")
    guessed = st.one_of(
        st.sampled_from([key[:-1], key.upper(), f"{key}\x00", f"{key}\x0b{key}", f"{key},{key}x", ""]),
        names.map(lambda name: f"key-of-{name}\x0b{key}"),
        names,
        st.text(max_size=40).map(_on_one_line),
    )
    scheme = st.sampled_from(["Bearer ", "bearer  ", "Basic ", "", "Bearer\t", "Bearer Bearer "])
    field = st.sampled_from(["Authorization", "authorization", "x-api-key"])
    claim = st.tuples(field, st.builds(str.__add__, scheme, guessed))
    return mostly(st.just(shown), st.lists(claim, max_size=2), claim.map(lambda it: [*shown, it]), st.just(shown * 2))


_TENANT_HEADERS = (
    "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id", "X-Tenant", "X-Forwarded-User", "X-Request-Id",
    "x-session-id", "X-data-parallel-rank", "Cookie", "Forwarded", "traceparent",
)  # fmt: skip
_FRAMING_HEADERS = (
    ("Content-Encoding", "gzip"), ("Content-Encoding", "identity, deflate"), ("Content-Length", "0"), ("Host", "other"),
    ("Transfer-Encoding", "identity"), ("Expect", "100-continue"), ("Upgrade", "websocket"), ("Connection", "upgrade"),
)  # fmt: skip
_JSON = "application/json"
_CONTENT_TYPES = mostly(
    st.just([("Content-Type", _JSON)]),
    st.lists(
        st.sampled_from(
            [_JSON, "application/json; charset=utf-16", "text/plain", "application/x-www-form-urlencoded"]
        ).map(lambda value: ("Content-Type", value)),
        max_size=2,
    ),
)


def _headers(names: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, str]]:
    claimed = st.tuples(st.sampled_from(_TENANT_HEADERS), names)
    odd = st.tuples(st.text(min_size=1, max_size=12).map(_on_one_line), st.text(max_size=60).map(_on_one_line))
    return mostly(claimed, st.sampled_from(_FRAMING_HEADERS), odd)


def _on_one_line(text: str) -> str:
    """Replace line breaks, which would end a header and change the meaning of the rest of the request."""
    return text.replace("\r", "\x0b").replace("\n", "\x85")


_TURNED: tuple[Callable[[str], str], ...] = (
    lambda path: f"/{path}",
    lambda path: f"{path}/",
    lambda path: f"/x/..{path}",
    lambda path: path.replace("/", "%2f"),
    lambda path: f"http://other{path}",
    lambda path: path.upper(),
    lambda path: f"{path}#",
    lambda path: f"{path}%00",
    lambda path: f"{path};a=b",
)


def _turned_paths(names: st.SearchStrategy[str]) -> st.SearchStrategy[Callable[[str], str]]:
    """Draws changes of a path: other spellings of it, and queries after it."""

    def with_query(query: str) -> Callable[[str], str]:
        return lambda path: f"{path}?{query}"

    field = st.sampled_from(["tenant", "api_key", "cache_salt", "model", "zone"])
    pairs = st.lists(st.tuples(field, names).map("=".join), max_size=3).map("&".join)
    return st.one_of(
        st.sampled_from(_TURNED), pairs.map(with_query), st.text(max_size=20).map(_on_one_line).map(with_query)
    )


def _bodies_elsewhere(model: str) -> st.SearchStrategy[_Message]:
    """Draws bodies for every route."""
    paths = st.sampled_from([route.path for route in ROUTES if route.method != WEBSOCKET])
    return st.tuples(paths, st.one_of(st.binary(max_size=40), st.just(json.dumps({"model": model}).encode())))


def _whole(body: bytes) -> tuple[list[str], bytes]:
    return _of_length(body, len(body))


def _of_length(body: bytes, claimed: int) -> tuple[list[str], bytes]:
    return ["Connection: close", f"Content-Length: {claimed}"], body


def _chunked(body: bytes, size: str = "{:x}") -> tuple[list[str], bytes]:
    half = len(body) // 2
    parts = [part for part in (body[:half], body[half:]) if part]
    chunks = b"".join(size.format(len(part)).encode() + b"\r\n" + part + b"\r\n" for part in parts)
    return ["Connection: close", "Transfer-Encoding: chunked"], chunks + b"0\r\n\r\n"


def _followed(body: bytes) -> tuple[list[str], bytes]:
    """Returns the body followed by another request without a key."""
    return [f"Content-Length: {len(body)}"], body + b"GET /v1/models HTTP/1.1\r\nHost: engine\r\n\r\n"


_WRONG_FRAMINGS: tuple[_Framing, ...] = (
    _followed,
    lambda body: _chunked(body, "{:X};tenant=acme"),
    lambda body: _chunked(body, "0x{:x}"),
    lambda body: _of_length(body, len(body) + 1),
    lambda body: _of_length(body, max(0, len(body) - 1)),
    lambda body: _of_length(body, -1),
    lambda body: ([f"Content-Length: {len(body)}", "Content-Length: 1"], body),
    lambda body: ([f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"], body),
)
