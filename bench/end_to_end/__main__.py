"""Measures the end-to-end cost of zones, as a ratio to stock vLLM.

Engines run side by side on the CPU, with the same model, blocks, flags and cores. `vllm bench serve` sends the same
prompts, with repeated prefixes, to each engine in turn. The order alternates with each round: stock, zones, zones,
stock. Each round has new prompts, so that the pool stays full and blocks are evicted.

Each engine is measured twice in a round: saturated, with a fixed number of concurrent requests, for the throughput; and
steady, with requests at random times, at half the rate of the slowest engine, for the time to first token. (In the
saturated run, the longest times are those of the first requests, which are all sent at once.) Two engines of the same
kind (`--engines stock stock`) show the noise of the machine.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path

from bench.end_to_end import model
from bench.end_to_end.engines import Engine, EngineError, Engines
from bench.end_to_end.load import Load, LoadError, run
from bench.end_to_end.results import Round, tables
from bench.progress import say

STEADY_SHARE = 0.5


def main() -> None:
    """Start the engines, measure them in turn, and print the ratios."""
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    engine_cores = options.engine_cores or cores[: max(1, len(cores) - 1)]
    load = Load(prompts=options.prompts, concurrency=options.concurrency)
    try:
        with tempfile.TemporaryDirectory(prefix="end-to-end-") as folder, Engines() as engines:
            results = _measure(Path(folder), engines, options, load, engine_cores)
    except (EngineError, LoadError) as error:
        sys.exit(f"bench.end_to_end: {error}")
    print(tables(results))
    if options.output:
        content = {name: [dataclasses.asdict(each) for each in runs] for name, runs in results.items()}
        options.output.write_text(json.dumps({"load": dataclasses.asdict(load), "rounds": content}, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.end_to_end", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--engines",
        nargs="+",
        type=_zones,
        default=[None, 1],
        metavar="ENGINE",
        help="'stock', or with how many zones; the others are compared with the first (default: stock 1)",
    )
    parser.add_argument("--rounds", type=int, default=6, help="after one to warm up (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=300, help="in each run (default: %(default)s)")
    parser.add_argument(
        "--concurrency", type=int, default=16, help="requests at a time, saturated (default: %(default)s)"
    )
    parser.add_argument(
        "--engine-cores",
        type=int,
        nargs="+",
        metavar="CORE",
        help="that all engines run on; the client has the others, if any are left (default: all but the last)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write each run, with each request's TTFT, as JSON")
    return parser.parse_args()


def _zones(text: str) -> int | None:
    return None if text == "stock" else int(text)


def _measure(
    folder: Path, engines: Engines, options: argparse.Namespace, load: Load, engine_cores: list[int]
) -> dict[str, list[Round]]:
    tokenizer = folder / "model"
    say("making the model")
    model.make(tokenizer)
    for name, zones in _named(options.engines).items():
        own = folder / name
        own.mkdir()
        engines.add(Engine(name, zones, model=tokenizer, folder=own, cores=engine_cores))
    # From here on, keep the client off the engines' cores.
    os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - set(engine_cores) or os.sched_getaffinity(0))
    engines.await_ready()
    say("warming up")
    warm = [run(engine, load, tokenizer=tokenizer, seed=0) for engine in engines]
    rate = STEADY_SHARE * min(each.requests_per_second for each in warm)
    say(f"steady is {rate:.1f} requests a second")
    results: dict[str, list[Round]] = {engine.name: [] for engine in engines}
    for number in range(1, options.rounds + 1):
        for engine in list(engines)[:: 1 if number % 2 else -1]:
            say(f"round {number} of {options.rounds}: {engine.name}")
            saturated = run(engine, load, tokenizer=tokenizer, seed=2 * number)
            steady = run(engine, load, tokenizer=tokenizer, seed=2 * number + 1, rate=rate)
            results[engine.name].append(Round(saturated, steady))
    return results


def _named(engines: list[int | None]) -> dict[str, int | None]:
    named: dict[str, int | None] = {}
    for zones in engines:
        name = "stock" if zones is None else "1 zone" if zones == 1 else f"{zones:,} zones"
        while name in named:
            name += " again"
        named[name] = zones
    return named


if __name__ == "__main__":
    main()
