"""Measures a quiet tenant's latency next to a noisy neighbour, for several ways to serve both from one engine.

The quiet tenant's requests arrive at random times and share a prefix. The bench measures this tenant solo, then the
neighbour alone, which sends many concurrent long requests with distinct prompts, then both together. It measures all
arms in turn, in a different order for each seed: stock vLLM, salts and a bounded queue, priorities, KVWarden in front,
and zones. All arms have the same model, flags and cores.

    python -m bench.noisy_neighbour --plot noisy-neighbour.svg
"""

import argparse
import asyncio
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.end_to_end import model
from bench.end_to_end.engines import Engine, EngineError, Engines
from bench.noisy_neighbour import kvwarden
from bench.noisy_neighbour.arms import ARMS, FLOOD, IDLE_SECONDS, QUIET, SEATS, Arm, with_target
from bench.noisy_neighbour.asking import Answer, AskingError, Flood, Shape, Tenant, ask_quietly
from bench.noisy_neighbour.figures import Phase, Seed, table
from bench.noisy_neighbour.plot import draw, draw_frontier
from bench.noisy_neighbour.promises import promises
from bench.noisy_neighbour.results import Results, ResultsError
from bench.progress import say

_WARM_ANSWERS = 2
"""Number of flood answers per seat after which the flood counts as being in steady state."""
_WARM_REQUESTS = 2
"""Number of requests of the quiet tenant before its solo measurement."""
_LOOK_SECONDS = 0.2
_IDLE_LOAD = 0.2
"""CPU load, in cores, up to which an engine counts as idle."""
_LONGEST_WARMING_SECONDS = 60.0


def main() -> None:
    """Start the engines, measure all arms in turn, print the table and draw the plot."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    engine_cores = cores[: max(1, len(cores) - 1)]
    arms = [arm for arm in ARMS if not options.arms or arm.name in options.arms]
    shape = Shape(requests=options.requests, rate=options.rate)
    settings = {
        "shape": dataclasses.asdict(shape),
        "at once": options.at_once,
        "flood alone, seconds": options.alone_seconds,
        "targets for the first token": options.first_token,
        "model": str(options.model),
        "flags": options.flags,
    }
    try:
        arms += [with_target(seconds, first_token=options.first_token) for seconds in options.targets]
        results = Results(options.results, settings)
        numbers = range(1, options.seeds + 1)
        wanted = [arm for arm in arms if not all(results.has(arm.name, number) for number in numbers)]
        if wanted:
            with tempfile.TemporaryDirectory(prefix="noisy-neighbour-") as folder, ExitStack() as stack:
                engines, tenants = _start(Path(folder), stack, wanted, engine_cores, options)
                os.sched_setaffinity(0, set(cores) - set(engine_cores) or cores)
                asyncio.run(_measure(engines, tenants, shape, options, results))
    except (EngineError, AskingError, ResultsError) as error:
        sys.exit(f"bench.noisy_neighbour: {error}")
    seeds = results.of([arm.name for arm in arms], options.seeds)
    targets = {arm.name: arm.target_seconds for arm in arms if arm.target_seconds is not None}
    print(table(seeds), "", *promises(seeds, options.steps_in_flight, targets), sep="\n")
    if options.plot:
        draw(seeds, options.plot)
    if options.frontier:
        draw_frontier(seeds, targets, options.frontier)


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
        "--requests", type=int, default=40, help="of the quiet tenant, per phase (default: %(default)s)"
    )
    parser.add_argument("--rate", type=float, default=4.0, help="of them per second (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=32, help="requests of the flood (default: %(default)s)")
    parser.add_argument("--alone-seconds", type=float, default=10.0, help="of the flood alone (default: %(default)s)")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a model in place of the small one that is made")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="of vLLM, for all engines; the last ones")
    parser.add_argument("--kvwarden-rpm", type=int, default=260, help="requests per minute of a tenant (%(default)s)")
    parser.add_argument(
        "--targets", nargs="+", type=float, default=[], metavar="SECONDS", help="an arm for each of them"
    )
    parser.add_argument("--first-token", action="store_true", help="targets are for the first token, too")
    parser.add_argument("--steps-in-flight", type=int, default=1, help="of the engines: 2 with async scheduling")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep every measured time, and go on from what is in it"
    )
    parser.add_argument("--frontier", type=Path, metavar="FILE", help="draw the flood's throughput against the targets")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the distributions of the time to first token")
    return parser.parse_args()


def _start(
    folder: Path, stack: ExitStack, arms: list[Arm], cores: list[int], options: argparse.Namespace
) -> tuple[Engines, dict[str, dict[str, Tenant]]]:
    """Start the engines and proxies of the arms; returns all engines, and the two tenants of each arm."""
    weights = options.model or folder / "model"
    if options.model is None:
        say("making the model")
        model.make(weights)
    engines = stack.enter_context(Engines())
    of_arms: dict[str, Engine] = {}
    shared: dict[tuple[Any, ...], Engine] = {}
    for number, arm in enumerate(arms):
        own = folder / str(number)
        own.mkdir()
        flags = ("--max-num-seqs", str(SEATS), *arm.flags, *options.flags)
        # KVWarden uses the engine that is also measured without it.
        key = (arm.zones, flags)
        if key not in shared:
            shared[key] = Engine(
                arm.name,
                arm.zones,
                model=weights,
                folder=own,
                cores=cores,
                tenants=2,
                flags=flags,
                start_cores=sorted(os.sched_getaffinity(0)),
            )
            engines.add(shared[key])
        of_arms[arm.name] = shared[key]
    engines.await_ready()
    for engine in engines:
        engine.settle()
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
    return engines, tenants


async def _measure(
    engines: Engines,
    arms: dict[str, dict[str, Tenant]],
    shape: Shape,
    options: argparse.Namespace,
    results: Results,
) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        for number in range(1, options.seeds + 1):
            names = list(arms)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                if not results.has(name, number):
                    say(f"seed {number} of {options.seeds}: {name}")
                    await _until_idle(engines)
                    results.add(name, number, await _one(session, arms[name], shape, options, number))


async def _one(
    session: aiohttp.ClientSession, tenants: dict[str, Tenant], shape: Shape, options: argparse.Namespace, seed: int
) -> Seed:
    warming = dataclasses.replace(shape, requests=_WARM_REQUESTS)
    await ask_quietly(session, tenants[QUIET], warming, 0)
    solo = await ask_quietly(session, tenants[QUIET], shape, seed)
    needed_until = time.perf_counter() + IDLE_SECONDS
    flood = Flood(session, tenants[FLOOD], shape, options.at_once, seed)
    async with _at_its_height(flood):
        await asyncio.sleep(needed_until - time.perf_counter())
        alone = await _rate(flood, asyncio.sleep(options.alone_seconds))
        # Warm up again, because the flood may fill a step that began while the quiet zone was idle.
        await ask_quietly(session, tenants[QUIET], warming, 0)
        refused = flood.refused
        flooded: list[Answer] = []

        async def ask() -> None:
            flooded.extend(await ask_quietly(session, tenants[QUIET], shape, -seed))

        rate = await _rate(flood, ask())
        flood.check()
    return Seed(_phase(solo), _phase(flooded), rate, alone, flood.refused - refused)


async def _until_idle(engines: Engines) -> None:
    """Wait until all engines are idle, because they share cores and need some steps to abort a flood's requests."""
    for engine in engines:
        began = time.perf_counter()
        while await _load(engine) > _IDLE_LOAD:
            if time.perf_counter() - began > _LONGEST_WARMING_SECONDS:
                raise EngineError(f"{engine.name} is still at work {_LONGEST_WARMING_SECONDS:.0f} s after a flood")


async def _load(engine: Engine) -> float:
    """Returns the CPU load of an engine, in cores."""
    used, began = engine.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(_LOOK_SECONDS)
    return (engine.cpu_seconds() - used) / (time.perf_counter() - began)


@asynccontextmanager
async def _at_its_height(flood: Flood) -> AsyncIterator[None]:
    """Start a flood, and wait until it is in steady state; stop it when the block ends."""
    async with flood.entered():
        began = time.perf_counter()
        while flood.answers < _WARM_ANSWERS * SEATS and time.perf_counter() - began < _LONGEST_WARMING_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            flood.check()
        yield


async def _rate(flood: Flood, meanwhile: Awaitable[None]) -> float:
    """Returns the flood's tokens per second while something else is awaited."""
    before, began = flood.tokens, time.perf_counter()
    await meanwhile
    return (flood.tokens - before) / (time.perf_counter() - began)


def _phase(answers: list[Answer]) -> Phase:
    return Phase(
        tuple(answer.first_token_seconds for answer in answers),
        tuple(seconds for answer in answers for seconds in answer.token_seconds),
        sum(answer.refused for answer in answers),
    )


if __name__ == "__main__":
    main()
