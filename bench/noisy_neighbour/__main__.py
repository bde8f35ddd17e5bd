"""What a quiet tenant gets beside a noisy neighbour, by each of several ways to serve them from one engine.

The quiet tenant's requests come at random times; each begins with a prefix that all share. It is measured solo, then
beside a neighbour that keeps many long requests of distinct prompts under way, then the neighbour alone. All arms are
measured in turn, in another order with each seed: stock vLLM; with salts and a bounded queue; by priority; with
KVWarden in front; with zones. They have the same model, flags and cores.

    python -m bench.noisy_neighbour --plot noisy-neighbour.svg
"""

import argparse
import asyncio
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from bench.end_to_end import model
from bench.end_to_end.engines import Engine, EngineError, Engines
from bench.noisy_neighbour import kvwarden
from bench.noisy_neighbour.arms import ARMS, FLOOD, QUIET, SEATS, Arm
from bench.noisy_neighbour.asking import Answer, AskingError, Flood, Shape, Tenant, ask_quietly
from bench.noisy_neighbour.figures import Phase, Seed, table
from bench.noisy_neighbour.plot import draw

_WARM_ANSWERS = 2
"""Of the flood for each seat, before it counts as at its height."""
_LOOK_SECONDS = 0.2
_LONGEST_WARMING_SECONDS = 60.0


def main() -> None:
    """Start the engines, measure all arms in turn, print the table and draw the plot."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    engine_cores = cores[: max(1, len(cores) - 1)]
    arms = [arm for arm in ARMS if not options.arms or arm.name in options.arms]
    shape = Shape(requests=options.requests, rate=options.rate)
    try:
        with tempfile.TemporaryDirectory(prefix="noisy-neighbour-") as folder, ExitStack() as stack:
            tenants = _start(Path(folder), stack, arms, engine_cores, options)
            os.sched_setaffinity(0, set(cores) - set(engine_cores) or cores)
            results = asyncio.run(_measure(tenants, shape, options))
    except (EngineError, AskingError) as error:
        sys.exit(f"bench.noisy_neighbour: {error}")
    print(table(results))
    if options.output:
        content = {name: [dataclasses.asdict(seed) for seed in seeds] for name, seeds in results.items()}
        options.output.write_text(json.dumps({"shape": dataclasses.asdict(shape), "arms": content}, indent=1))
    if options.plot:
        draw(results, options.plot)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.noisy_neighbour",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [arm.name for arm in ARMS]
    parser.add_argument("--arms", nargs="+", choices=names, metavar="ARM", help=f"default: all of {names}")
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    parser.add_argument(
        "--requests", type=int, default=100, help="of the quiet tenant, per phase (default: %(default)s)"
    )
    parser.add_argument("--rate", type=float, default=2.0, help="of them per second (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=32, help="requests of the flood (default: %(default)s)")
    parser.add_argument("--alone-seconds", type=float, default=30.0, help="of the flood alone (default: %(default)s)")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a model in place of the small one that is made")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="of vLLM, for all engines; the last ones")
    parser.add_argument("--kvwarden-rpm", type=int, default=180, help="requests per minute of a tenant (%(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write every measured time, as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the distributions of the time to first token")
    return parser.parse_args()


def _start(
    folder: Path, stack: ExitStack, arms: list[Arm], cores: list[int], options: argparse.Namespace
) -> dict[str, dict[str, Tenant]]:
    """Start what serves each arm; returns its two tenants."""
    weights = options.model or folder / "model"
    if options.model is None:
        _say("making the model")
        model.make(weights)
    engines = stack.enter_context(Engines())
    of_arms: dict[str, Engine] = {}
    for number, arm in enumerate(arms):
        own = folder / str(number)
        own.mkdir()
        flags = ("--max-num-seqs", str(SEATS), *arm.flags, *options.flags)
        of_arms[arm.name] = Engine(arm.name, arm.zones, model=weights, folder=own, cores=cores, tenants=2, flags=flags)
        engines.add(of_arms[arm.name])
    engines.await_ready()
    tenants = {}
    for number, arm in enumerate(arms):
        engine, url = of_arms[arm.name], of_arms[arm.name].url
        if arm.is_behind_kvwarden:
            rpm = options.kvwarden_rpm
            url = stack.enter_context(kvwarden.in_front_of(url, folder / str(number), requests_per_minute=rpm))
        tenants[arm.name] = {
            name: Tenant(
                url,
                {**engine.headers_of(place), kvwarden.TENANT_HEADER: name},
                {"model": engine.model, **arm.fields.get(name, {})},
            )
            for place, name in enumerate((QUIET, FLOOD))
        }
    return tenants


async def _measure(
    arms: dict[str, dict[str, Tenant]], shape: Shape, options: argparse.Namespace
) -> dict[str, list[Seed]]:
    results: dict[str, list[Seed]] = {name: [] for name in arms}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        for seed in range(1, options.seeds + 1):
            names = list(arms)
            for name in names[seed % len(names) :] + names[: seed % len(names)]:
                _say(f"seed {seed} of {options.seeds}: {name}")
                results[name].append(await _one(session, arms[name], shape, options, seed))
    return results


async def _one(
    session: aiohttp.ClientSession, tenants: dict[str, Tenant], shape: Shape, options: argparse.Namespace, seed: int
) -> Seed:
    solo = await ask_quietly(session, tenants[QUIET], shape, seed)
    flood = Flood(session, tenants[FLOOD], shape, options.at_once, seed)
    async with _at_its_height(flood):
        alone = await _pace(flood, asyncio.sleep(options.alone_seconds))
        refused = flood.refused
        beside: list[Answer] = []

        async def ask() -> None:
            beside.extend(await ask_quietly(session, tenants[QUIET], shape, -seed))

        pace = await _pace(flood, ask())
        flood.check()
    return Seed(_phase(solo), _phase(beside), pace, alone, flood.refused - refused)


@asynccontextmanager
async def _at_its_height(flood: Flood) -> AsyncIterator[None]:
    """Enter a flood, and wait until it is served as it will be."""
    async with flood.entered():
        began = time.perf_counter()
        while flood.answers < _WARM_ANSWERS * SEATS and time.perf_counter() - began < _LONGEST_WARMING_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            flood.check()
        yield


async def _pace(flood: Flood, meanwhile: Awaitable[None]) -> float:
    """The flood's tokens per second, for as long as something else takes."""
    before, began = flood.tokens, time.perf_counter()
    await meanwhile
    return (flood.tokens - before) / (time.perf_counter() - began)


def _phase(answers: list[Answer]) -> Phase:
    return Phase(
        tuple(answer.first_token_seconds for answer in answers),
        tuple(seconds for answer in answers for seconds in answer.token_seconds),
        sum(answer.refused for answer in answers),
    )


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
