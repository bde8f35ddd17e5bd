"""Measures the error of the replay's latencies relative to a real engine, after fitting the step time to that engine.

The bench fits step times to a stock vLLM engine on the CPU, as a user would (``tenantzone-replay fit``). Then it sends
requests to the engine at random times, some with a common prefix, and gives the replay the same requests at the same
times. It compares the time to first token, and the time between tokens.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.end_to_end import model
from bench.end_to_end.engines import BLOCK_TOKENS, BLOCKS, Engine, Engines
from tenantzone_replay.__main__ import main as replay_command
from tenantzone_replay.engine.engine_client import Answer, EngineClient, new_prompt
from tenantzone_replay.engine.measured import Measured, read_measured
from tenantzone_replay.results.tables import columns
from tenantzone_replay.simulation.distribution import Distribution
from tenantzone_replay.simulation.measures import Result, Target
from tenantzone_replay.simulation.policies import Policy
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import Asked
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape

_SEATS: Final = 64
_STEP_TOKENS: Final = 512
_QUANTILES: Final = (0.25, 0.5, 0.75, 0.9, 0.95)


def load(requests: int, rate: float, seed: int) -> list[Asked]:
    """Returns requests with prompts of 32 to 1,200 tokens; every third prompt begins with one of eight prefixes."""
    rng = random.Random(seed)
    arrival, asked = 0.0, []
    for number in range(requests):
        arrival += rng.expovariate(rate)
        common = rng.randrange(8) if number % 3 == 0 else None
        begin = () if common is None else tuple(1000 * (common + 1) + part for part in range(12))
        own = min(1200, max(32, int(rng.lognormvariate(5.3, 0.9))))
        known = len(begin) * BLOCK_TOKENS
        asked.append(Asked(arrival, known + own, rng.randrange(4, 48), begin, BLOCK_TOKENS, known, number, "all"))
    return asked


def prompt_of(number: int, asked: Asked) -> list[int]:
    """Returns the tokens of a request's prompt."""
    tokens = [token for part in asked.content for token in new_prompt(random.Random(part), BLOCK_TOKENS)]
    return tokens + new_prompt(random.Random(f"own {number}"), asked.prompt_tokens - asked.known_tokens)


async def ask_all(url: str, requests: Sequence[Asked]) -> list[Answer]:
    """Send each request at its arrival time, and return all answers."""
    prompts = [prompt_of(number, asked) for number, asked in enumerate(requests)]
    async with EngineClient(url, "", "") as engine:
        began = time.perf_counter()

        async def one(number: int) -> Answer:
            asked = requests[number]
            await asyncio.sleep(max(0.0, began + asked.arrival - time.perf_counter()))
            return await engine.ask(prompts[number], asked.output_tokens)

        return await asyncio.gather(*map(one, range(len(requests))))


def replayed(requests: Sequence[Asked], measured: Measured) -> Result:
    """Returns the result of the same requests in virtual time."""
    from tenantzone_replay.simulation.replay import replay

    shape = EngineShape(BLOCKS - 1, BLOCK_TOKENS, _SEATS, _STEP_TOKENS, model.LONGEST)
    setting = Setting(lambda: iter(requests), profile(requests), shape, measured, Target())
    return replay(setting, Policy("stock", "vLLM", salted=False))


def table(answers: Sequence[Answer], result: Result) -> str:
    """Returns a table with quantiles of both, and the replay's error."""
    first, token = Distribution(), Distribution()
    for answer in answers:
        first.add(answer.first_token_seconds)
        if len(answer.tokens) > 1:
            token.add((answer.tokens[-1] - answer.tokens[0]) / (len(answer.tokens) - 1))
    rows: list[Sequence[str]] = [("", "mean", *(f"p{100 * part:.0f}" for part in _QUANTILES))]
    for what, real, virtual in (("TTFT", first, result.first_token()), ("TPOT", token, result.token())):
        pairs = [(real.mean, virtual.mean)]
        pairs += [(real.quantile(part), virtual.quantile(part)) for part in _QUANTILES]
        rows.append((f"{what}, engine", *(f"{1e3 * each:.1f} ms" for each, _ in pairs)))
        rows.append((f"{what}, replay", *(f"{1e3 * each:.1f} ms" for _, each in pairs)))
        rows.append(("  off by", *(f"{b / a - 1:+.0%}" for a, b in pairs)))
    return columns(rows)


def main() -> None:
    """Fit the step time, send the requests, replay them, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay.latency", description=__doc__)
    parser.add_argument("--requests", type=int, default=400, help="default: %(default)s")
    parser.add_argument("--rates", type=float, nargs="+", default=[4.0, 8.0], help="requests a second (default: 4 8)")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    engine_cores = cores[: max(1, len(cores) - 1)]
    with tempfile.TemporaryDirectory(prefix="replay-latency-") as name, Engines() as engines:
        folder = Path(name)
        model.make(folder / "model")
        flags = ("--max-num-seqs", str(_SEATS), "--max-num-batched-tokens", str(_STEP_TOKENS))
        engine = Engine(
            "stock", None, model=folder / "model", folder=folder, cores=engine_cores, flags=flags, start_cores=cores
        )
        engines.add(engine)
        engines.await_ready()
        engine.settle()
        os.sched_setaffinity(0, set(cores) - set(engine_cores) or cores)
        found = folder / "engine.json"
        replay_command(["fit", engine.url, "--step-tokens", str(_STEP_TOKENS), "--out", str(found)])
        measured = read_measured(found)
        for rate in options.rates:
            requests = load(options.requests, rate, seed=1)
            print(f"{rate:g} requests a second: {options.requests} requests", file=sys.stderr, flush=True)
            answers = asyncio.run(ask_all(engine.url, requests))
            print(f"\n{rate:g} requests a second\n{table(answers, replayed(requests, measured))}", flush=True)


if __name__ == "__main__":
    main()
