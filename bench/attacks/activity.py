"""Activity: tests whether an attacker without a key learns from refusal times when a tenant's answers are written.

A victim alternates between receiving answers and being idle. Meanwhile the attacker sends requests that are refused
(stock vLLM, which has no keys here, answers 400), and measures the time. Stock vLLM and zones are attacked in one run:

    python -m bench.attacks.activity
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import httpx

from bench.attacks.engines import attacked_engines
from bench.attacks.findings import Distinction, distinguish
from bench.attacks.probing import Target
from bench.end_to_end.engines import EngineError
from bench.progress import say

_ANSWERS = 8
"""Number of answers that are written at the same time."""
_TOKENS = 1500
"""Length of each answer in tokens; more than are written before the victim disconnects."""
_WARM_UP = 20
_TIMEOUT_SECONDS = 60.0


@dataclass(slots=True)
class Times:
    """Times of refusals in seconds, while the victim is idle and while its answers are written."""

    silent: list[float] = field(default_factory=list)
    writing: list[float] = field(default_factory=list)


async def watch(target: Target, rounds: int, looks: int) -> Times:
    """Measure the times of refusals, while the victim alternates between being idle and receiving answers.

    Args:
        target: an engine without other clients.
        rounds: the number of rounds, each with an idle half and a busy half.
        looks: the number of refusals in each half of a round, whose median is one sample.
    """
    times = Times()
    async with (
        httpx.AsyncClient(base_url=target.url, timeout=_TIMEOUT_SECONDS) as anybody,
        httpx.AsyncClient(base_url=target.url, timeout=_TIMEOUT_SECONDS, headers=target.headers_of(0)) as victim,
    ):
        for _ in range(_WARM_UP):
            await _refusal(anybody)
        for _ in range(rounds):
            times.silent.append(median([await _refusal(anybody) for _ in range(looks)]))
            async with asyncio.TaskGroup() as writing:
                begun = [asyncio.Event() for _ in range(_ANSWERS)]
                over = asyncio.Event()
                for each in begun:
                    writing.create_task(_have_written(victim, target.model, each, over))
                for each in begun:
                    await each.wait()
                times.writing.append(median([await _refusal(anybody) for _ in range(looks)]))
                over.set()
            # Send a request, so that the aborted answers are released and the engine is idle before the next round.
            await victim.post("/v1/completions", json={"model": target.model, "prompt": "w1", "max_tokens": 1})
    return times


async def _refusal(client: httpx.AsyncClient) -> float:
    began = time.perf_counter()
    answer = await client.post("/v1/completions", json={})
    seconds = time.perf_counter() - began
    if answer.status_code not in (400, 401):
        raise EngineError(f"an anonymous request is answered with {answer.status_code}: {answer.text[:300]}")
    return seconds


async def _have_written(client: httpx.AsyncClient, model: str, begun: asyncio.Event, over: asyncio.Event) -> None:
    body = {"model": model, "prompt": "w1 w2 w3", "max_tokens": _TOKENS, "ignore_eos": True, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        async for _ in response.aiter_lines():
            begun.set()
            if over.is_set():
                return


def table(found: Mapping[str, tuple[Times, Distinction]], looks: int) -> str:
    """Returns a table of the findings, with a line for each engine."""
    lines = [
        f"times of refusals to a client without a key, medians of {looks}",
        f"{'':<8} {'rounds':>6} {'silent':>10} {'writing':>10} {'AUC':>7} {'KS p':>9}",
    ]
    for name, (times, guess) in found.items():
        silent, writing = (1000 * median(each) for each in (times.silent, times.writing))
        lines.append(
            f"{name:<8} {len(times.silent):>6} {silent:>7.2f} ms {writing:>7.2f} ms "
            f"{guess.auc:>7.3f} {guess.p_value:>9.2g}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Start the engines, attack them in turn, and print the findings."""
    options = _options(arguments)
    found: dict[str, tuple[Times, Distinction]] = {}
    try:
        with attacked_engines(zones=1) as engines:
            for engine in engines:
                say(f"{engine.name}: {options.rounds} rounds")
                times = asyncio.run(watch(engine, options.rounds, options.looks))
                found[engine.name] = times, distinguish(times.silent, times.writing)
    except EngineError as error:
        sys.exit(f"bench.attacks.activity: {error}")
    print(table(found, options.looks))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks.activity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=100, help="of silence and writing (default: %(default)s)")
    parser.add_argument("--looks", type=int, default=5, help="in each half of a round (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
