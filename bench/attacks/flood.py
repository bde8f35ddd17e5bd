"""Flood: whether one tenant's pathological requests cost another its cache, its time, or everybody the server.

A victim asks the same long prompt again and again, and somebody asks for ``/health`` all the time, while an attacker
sends one kind of load after the other, each after a plain one that asks the engine for about as much: what the
pathology of it costs is the difference. On stock vLLM and with zones, side by side, in one run:

    python -m bench.attacks.flood
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import os
import random
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.end_to_end.engines import Engine, EngineError, Engines
from bench.end_to_end.model import LONGEST
from hack.demo import tiny_model
from tenantzone_contract.config import CONFIG_KEY, PoolConfig, ZoneConfig
from tenantzone_contract.config_text import dump_config, make_config
from tenantzone_contract.zone_terms import Queue

_FLAGS = ("--enable-prompt-tokens-details", "--max-num-batched-tokens", "512")
_VICTIM_TOKENS = 512
_PROMPTS_OF_A_REQUEST = 100
_QUEUE = Queue(requests=200)
_AT_ONCE = 16
_AS_MANY_AS_WAIT = 192
"""Less than the queue has room for."""
_PAUSE_SECONDS = 0.1
"""Between two requests of the victim, and between two looks at ``/health``."""

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """What the attacker sends."""

    name: str
    body: Callable[[random.Random], Body]
    at_once: int = _AT_ONCE
    most: int | None = None
    """Requests; None: as many as the time allows."""
    is_aborted: bool = False
    """Whether each is a stream that ends after its first piece."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A load, and what it is compared with."""

    plain: Load
    """About as much work for the engine, of which nothing is odd."""
    pathological: Load


@dataclass(slots=True)
class Seen:
    """What was seen while one load was sent."""

    first_tokens: list[float] = field(default_factory=list)
    """Seconds until the victim's first token; of a request that had none when the time was over, those until then."""
    cached_tokens: list[int] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """Statuses that the attacker got."""
    resident_bytes: int = 0
    """Of the API server, at the most."""

    @property
    def p99(self) -> float:
        return sorted(self.first_tokens)[math.ceil(0.99 * len(self.first_tokens)) - 1]


def pairs(queued: int, aborted: int) -> tuple[Pair, ...]:
    """The loads, each with its plain one.

    Args:
        queued: requests that are to wait at once.
        aborted: streams that are ended after their first piece.
    """
    many = math.ceil(queued / _PROMPTS_OF_A_REQUEST)
    return (
        Pair(
            _short("one prompt each", tokens=16),
            Load(
                f"{queued:,} queued",
                lambda dice: _asking([_prompt(dice, 128) for _ in range(_PROMPTS_OF_A_REQUEST)], 16),
                at_once=many,
                most=many,
            ),
        ),
        Pair(
            _short("prompts of 128 tokens"),
            Load(f"prompts of {LONGEST - 2:,} tokens", lambda dice: _asking(_prompt(dice, LONGEST - 2), 1)),
        ),
        Pair(
            _short("prompts of 128 tokens"),
            Load("busts of the cache", lambda dice: _asking(_prompt(dice, 1024), 1)),
        ),
        Pair(
            Load(f"{aborted:,} streams", _stream, most=aborted),
            Load(f"{aborted:,} aborted streams", _stream, most=aborted, is_aborted=True),
        ),
        Pair(
            Load("no grammar", lambda dice: _asking(f"hello {dice.random()}", 1)),
            Load(
                "grammars",
                lambda dice: {**_asking(f"hello {dice.random()}", 1), "structured_outputs": _grammar(dice)},
            ),
        ),
    )


def _short(name: str, tokens: int = 1) -> Load:
    """Single short prompts, as many at once as the attacker's queue takes."""
    return Load(name, lambda dice: _asking(_prompt(dice, 128), tokens), at_once=_AS_MANY_AS_WAIT)


def _stream(dice: random.Random) -> Body:
    return {**_asking(_prompt(dice, 128), 64), "stream": True}


def _asking(prompt: str | list[str], tokens: int) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def _prompt(dice: random.Random, tokens: int) -> str:
    """Of the tiny model's tokens, each of which is a byte."""
    return "".join(dice.choices(string.ascii_letters, k=tokens))


def _grammar(dice: random.Random) -> Body:
    """Dear, each in its own way, and never the same twice."""
    salt = dice.randrange(10**9)
    kinds: tuple[Body, ...] = (
        {"choice": [f"{salt} {number:x}" for number in range(3000)]},
        {"regex": f"(a|b){{1,900}}{salt}"},
        {"json": {"type": "object", "properties": {f"p{salt}{number}": {"type": "integer"} for number in range(1000)}}},
    )
    return dice.choice(kinds)


async def flood(engine: Engine, load: Load, seconds: float, seed: int) -> Seen:
    """Send one load for a while, and see what it does to the others."""
    seen, dice = Seen(), random.Random(seed)
    async with _client(engine, 0) as victim, _client(engine, 1) as attacker, _client(engine, 0) as nobody:
        prompt = _prompt(dice, _VICTIM_TOKENS)
        await _ask_as_victim(victim, engine, prompt, Seen())
        attacking = asyncio.create_task(_attack(attacker, engine, load, dice, seen))
        try:
            await asyncio.gather(
                _again(seconds, seen.first_tokens, lambda: _ask_as_victim(victim, engine, prompt, seen)),
                _again(seconds, seen.health, lambda: _look(nobody, engine, seen)),
            )
        finally:
            attacking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await attacking
    return seen


@contextlib.asynccontextmanager
async def _client(engine: Engine, tenant: int) -> AsyncIterator[httpx.AsyncClient]:
    headers = engine.headers_of(tenant)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=engine.url, headers=headers, timeout=120, limits=limits) as client:
        yield client


async def _again(seconds: float, took: list[float], do: Callable[[], Awaitable[None]]) -> None:
    """Do something for so long; what is not done in the end took at least the time until then."""
    began = time.perf_counter()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                began = time.perf_counter()
                await do()
                began = math.inf
                await asyncio.sleep(_PAUSE_SECONDS)
    if began < math.inf:
        took.append(time.perf_counter() - began)


async def _ask_as_victim(client: httpx.AsyncClient, engine: Engine, prompt: str, seen: Seen) -> None:
    body = {**_asking(prompt, 1), "model": engine.model, "stream": True, "stream_options": {"include_usage": True}}
    began, first = time.perf_counter(), None
    usage: dict[str, Any] = {}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter()
                usage = json.loads(line.removeprefix("data: ")).get("usage") or usage
    seen.first_tokens.append((first or time.perf_counter()) - began)
    seen.cached_tokens.append((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


async def _look(client: httpx.AsyncClient, engine: Engine, seen: Seen) -> None:
    began = time.perf_counter()
    (await client.get("/health")).raise_for_status()
    seen.health.append(time.perf_counter() - began)
    seen.resident_bytes = max(seen.resident_bytes, engine.api_server_bytes())


async def _attack(client: httpx.AsyncClient, engine: Engine, load: Load, dice: random.Random, seen: Seen) -> None:
    numbers = itertools.count() if load.most is None else iter(range(load.most))

    async def send() -> None:
        for _ in numbers:
            body = {"model": engine.model, **load.body(dice)}
            try:
                async with client.stream("POST", "/v1/completions", json=body) as response:
                    if load.is_aborted:
                        await anext(response.aiter_lines(), None)
                    else:
                        await response.aread()
                    seen.answers[str(response.status_code)] += 1
            except httpx.HTTPError as error:
                seen.answers[type(error).__name__] += 1

    await asyncio.gather(*(send() for _ in range(load.at_once)))


def table(found: Mapping[str, Sequence[tuple[Pair, Seen, Seen]]]) -> str:
    """What was seen of each pair, by engine."""
    lines = [
        f"{'':<8} {'the attacker sends':<24} {'victim p99':>10} {'x':>6} {'least cached':>12} {'health max':>10} "
        f"{'resident':>9}   answers to the attacker"
    ]
    for engine, by_pair in found.items():
        for pair, plain, odd in by_pair:
            lines.append(_line(engine, pair.plain, plain, ""))
            lines.append(_line(engine, pair.pathological, odd, f"{odd.p99 / plain.p99:.1f}"))
    return "\n".join(lines)


def _line(engine: str, load: Load, seen: Seen, times: str) -> str:
    answers = ", ".join(f"{count:,} x {status}" for status, count in sorted(seen.answers.items()))
    return (
        f"{engine:<8} {load.name:<24} {seen.p99:>8.2f} s {times:>6} {min(seen.cached_tokens, default=0):>12,} "
        f"{max(seen.health):>8.2f} s {seen.resident_bytes / 2**20:>5.0f} MiB   {answers or 'none within the time'}"
    )


def main() -> None:
    """Start the engines, flood them in turn, and print what it did."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    engine_cores = cores[: max(1, len(cores) - 1)]
    found: dict[str, list[tuple[Pair, Seen, Seen]]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="flood-") as folder, Engines() as engines:
            _start(Path(folder), engines, engine_cores)
            for engine in engines:
                found[engine.name] = []
                for seed, pair in enumerate(pairs(options.queued, options.aborted)):
                    plain, odd = (
                        _flood(engine, load, options.seconds, 2 * seed + which)
                        for which, load in enumerate((pair.plain, pair.pathological))
                    )
                    found[engine.name].append((pair, plain, odd))
    except EngineError as error:
        sys.exit(f"bench.attacks.flood: {error}")
    print(table(found))


def _flood(engine: Engine, load: Load, seconds: float, seed: int) -> Seen:
    print(f"{engine.name}: {load.name}", file=sys.stderr, flush=True)
    return asyncio.run(flood(engine, load, seconds, seed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks.flood", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load (default: %(default)s)")
    parser.add_argument("--queued", type=int, default=10_000, help="requests at once (default: %(default)s)")
    parser.add_argument("--aborted", type=int, default=1_000, help="streams (default: %(default)s)")
    return parser.parse_args()


def _start(folder: Path, engines: Engines, cores: list[int]) -> None:
    tiny_model.make(folder / "model")
    for name, zones in (("stock", None), ("zones", 2)):
        own = folder / name
        own.mkdir()
        engines.add(
            Engine(name, zones, model=folder / "model", folder=own, cores=cores, tenants=zones or 0, flags=_FLAGS)
        )
    # Before any engine has read it: the attacker's queue is bounded.
    (folder / "zones" / "config" / CONFIG_KEY).write_text(dump_config(make_config(1, _POOL, _ZONES)))
    os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - set(cores) or os.sched_getaffinity(0))
    engines.await_ready()


_POOL = PoolConfig(namespace="bench", name="pool")
_ZONES = (
    ZoneConfig(name="tenant-0", tenant="tenant-0", generation=1, reserved="50%"),
    ZoneConfig(name="tenant-1", tenant="tenant-1", generation=1, queue=_QUEUE),
)


if __name__ == "__main__":
    main()
