"""Flood: tests whether a tenant's pathological requests evict another tenant's cache, delay it, or block the server.

A victim repeats the same long prompt, and another client requests ``/health`` all the time, while an attacker sends one
kind of load after the other. Before each load the attacker sends a plain load with about the same work for the engine.
The difference between both is the cost of the pathology. Stock vLLM and zones are attacked in one run:

    python -m bench.attacks.flood
"""

import argparse
import asyncio
import contextlib
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from bench.attacks.answers import stream_answer
from bench.attacks.flood.attacker import Attack, attack_until_stopped
from bench.attacks.flood.health import ask_until_stopped
from bench.attacks.flood.loads import MOST_QUEUED, Load, Pair, asking, pairs, prompt_of
from bench.attacks.flood.separate_process import in_separate_process
from bench.end_to_end.engines import Engine, EngineError, Engines
from hack.demo.models import tiny_model
from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.zone_terms import QueueBounds

_FLAGS = ("--enable-prompt-tokens-details", "--max-num-batched-tokens", "512")
_VICTIM_TOKENS = 512
_PAUSE_SECONDS = 0.1
"""Pause between two requests of the victim."""


@dataclass(slots=True)
class Seen:
    """The observations while one load was sent."""

    first_tokens: list[float] = field(default_factory=list)
    """Seconds until the victim's first token, or until the end of the time if none arrived before."""
    cached_tokens: list[int] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    """Times of ``/health`` requests, in seconds."""
    answers: Counter[str] = field(default_factory=Counter)
    """Number of the attacker's answers by status."""
    resident_bytes: int = 0
    """Peak resident memory of the API server, in bytes."""

    @property
    def p99(self) -> float:
        return sorted(self.first_tokens)[math.ceil(0.99 * len(self.first_tokens)) - 1]


async def flood(engine: Engine, attack: Attack, seconds: float) -> Seen:
    """Send one load for a while, and measure its effect on the others."""
    seen = Seen()
    prompt = prompt_of(random.Random(attack.seed), _VICTIM_TOKENS)
    headers = engine.headers_of(0)
    async with httpx.AsyncClient(base_url=engine.url, headers=headers, timeout=120) as victim:
        await _ask_as_victim(victim, engine, prompt, Seen())
        with (
            in_separate_process("asking for /health", partial(ask_until_stopped, engine.url)) as health,
            in_separate_process(attack.load.name, partial(attack_until_stopped, attack)) as attacked,
        ):
            await asyncio.gather(
                _again(seconds, seen.first_tokens, lambda: _ask_as_victim(victim, engine, prompt, seen)),
                _again(seconds, [], lambda: _look_at_memory(engine, seen)),
            )
    seen.health, seen.answers = health.result, attacked.result
    return seen


async def _again(seconds: float, took: list[float], do: Callable[[], Awaitable[None]]) -> None:
    """Repeat an action for ``seconds``, and record its times; an unfinished action counts with its time so far."""
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
    answer = await stream_answer(client, {**asking(prompt, 1), "model": engine.model})
    seen.first_tokens.append(answer.seconds)
    seen.cached_tokens.append(answer.cached_tokens)


async def _look_at_memory(engine: Engine, seen: Seen) -> None:
    seen.resident_bytes = max(seen.resident_bytes, engine.api_server_bytes())


def table(found: Mapping[str, Sequence[tuple[Pair, Seen, Seen]]]) -> str:
    """Returns a table of the observations for each pair, by engine."""
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
    """Start the engines, flood them in turn, and print the effects."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    engine_cores = cores[: max(1, len(cores) - 1)]
    found: dict[str, list[tuple[Pair, Seen, Seen]]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="flood-") as folder, Engines() as engines:
            _start(Path(folder), engines, engine_cores)
            for engine in engines:
                found[engine.name] = []
                for number, pair in enumerate(pairs(options.queued, options.aborted)):
                    if options.only and pair.pathological.name not in options.only:
                        continue
                    for _ in range(options.times):
                        plain, odd = (_flood(engine, options, number, is_odd=is_odd) for is_odd in (False, True))
                        found[engine.name].append((pair, plain, odd))
    except EngineError as error:
        sys.exit(f"bench.attacks.flood: {error}")
    print(table(found))


def _flood(engine: Engine, options: argparse.Namespace, pair: int, *, is_odd: bool) -> Seen:
    queued, aborted = options.queued, options.aborted
    seed = 2 * pair + is_odd
    attack = Attack(engine.url, engine.model, engine.headers_of(1), pair, is_odd, queued, aborted, seed)
    print(f"{engine.name}: {attack.load.name}", file=sys.stderr, flush=True)
    return asyncio.run(flood(engine, attack, options.seconds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks.flood", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load (default: %(default)s)")
    parser.add_argument("--queued", type=int, default=10_000, help="requests at once (default: %(default)s)")
    parser.add_argument("--aborted", type=int, default=1_000, help="streams (default: %(default)s)")
    parser.add_argument("--times", type=int, default=1, help="that each pair is sent (default: %(default)s)")
    parser.add_argument("--only", nargs="*", metavar="LOAD", help="odd ones of the table; default: all")
    return parser.parse_args()


def _start(folder: Path, engines: Engines, cores: list[int]) -> None:
    tiny_model.make(folder / "model")
    for name, zones in (("stock", None), ("zones", 2)):
        own = folder / name
        own.mkdir()
        engines.add(
            Engine(name, zones, model=folder / "model", folder=own, cores=cores, tenants=zones or 0, flags=_FLAGS)
        )
    # Write the config, which limits the attacker's queue, before any engine has read it.
    (folder / "zones" / "config" / CONFIG_KEY).write_text(dump_config(make_config(1, _POOL, _ZONES)))
    os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - set(cores) or os.sched_getaffinity(0))
    engines.await_ready()


_POOL = PoolConfig(namespace="bench", name="pool")
_ZONES = (
    ZoneConfig(name="tenant-0", tenant="tenant-0", generation=1, reserved="50%"),
    ZoneConfig(name="tenant-1", tenant="tenant-1", generation=1, queue=QueueBounds(requests=MOST_QUEUED)),
)


if __name__ == "__main__":
    main()
