"""What tiers cost in an engine's steps: while nothing goes there, and while all that is computed does.

Engines run side by side on the CPU, with the same model, pool and zone. Each is asked in turn for the same load: so
many requests at once, each with a prompt that is like no other and an answer of so many tokens. The time that it takes
is told as a ratio: of an engine whose tiers are idle, as the zone offloads nothing, to one without tiers; of one that
stores all in CPU memory to stock vLLM's offloading, which has no worker for CPUs and runs with the one of the zones.

    python -m bench.tier_steps
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from bench.end_to_end import model
from bench.end_to_end.engines import BLOCK_TOKENS, Engine, EngineError, Engines
from bench.sessions.__main__ import BLOCK_BYTES
from tenantzone_contract.config import ZoneConfig
from tenantzone_runtime.offloading_flags import TierFlags, kv_transfer_config

POOL_BLOCKS = 256
REQUESTS = 8
PROMPT_TOKENS = 8 * BLOCK_TOKENS
ANSWER_TOKENS = 128


def main() -> None:
    """Start the engines, ask each in turn, and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tier_steps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="after two to warm up (default: %(default)s)")
    rounds = parser.parse_args().rounds
    try:
        with tempfile.TemporaryDirectory(prefix="tier-steps-") as folder, Engines() as engines:
            _start(Path(folder), engines)
            _print(_measure(engines, rounds))
    except EngineError as error:
        sys.exit(f"bench.tier_steps: {error}")


def _start(folder: Path, engines: Engines) -> None:
    model.make(folder / "model")
    memory = 4 * POOL_BLOCKS * BLOCK_BYTES
    stock = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "CpuWorkerSpec",
            "spec_module_path": "bench.sessions.stock_offloading",
            "cpu_bytes_to_use": memory,
            "offload_prompt_only": False,
        },
    }
    tiers = ["--kv-transfer-config", kv_transfer_config(TierFlags(memory))]
    zone = ZoneConfig(name="tenant-0", tenant="tenant-0", generation=1)
    arms = [
        ("zones", zone, []),
        ("zones, tiers idle", zone.model_copy(update={"offload": "Never"}), tiers),
        ("zones, tiers storing", zone, tiers),
        ("stock, offloading", None, ["--kv-transfer-config", json.dumps(stock)]),
    ]
    for name, declared, flags in arms:
        own = folder / name.replace(" ", "-")
        own.mkdir()
        engines.add(
            Engine(
                name,
                None if declared is None else [declared],
                model=folder / "model",
                folder=own,
                cores=sorted(os.sched_getaffinity(0)),
                flags=["--num-gpu-blocks-override", str(POOL_BLOCKS + 1), *flags],
            )
        )
    engines.await_ready()


def _measure(engines: Engines, rounds: int) -> dict[str, list[float]]:
    chance, seconds = random.Random(1), {engine.name: list[float]() for engine in engines}
    for number in range(rounds + 2):
        prompts = [chance.choices(range(10, 200), k=PROMPT_TOKENS) for _ in range(REQUESTS)]
        for engine in list(engines)[:: -1 if number % 2 else 1]:
            seconds[engine.name].append(_round(engine, prompts))
    return {name: each[2:] for name, each in seconds.items()}


def _round(engine: Engine, prompts: list[list[int]]) -> float:
    def ask(prompt: list[int]) -> None:
        body = {"model": engine.model, "prompt": prompt, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
        answer = httpx.post(f"{engine.url}/v1/completions", json=body, headers=engine.headers_of(0), timeout=300)
        answer.raise_for_status()

    began = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        list(pool.map(ask, prompts))
    return time.perf_counter() - began


def _print(seconds: dict[str, list[float]]) -> None:
    print(f"{REQUESTS} requests of {PROMPT_TOKENS} + {ANSWER_TOKENS} tokens at once")
    print(f"{'':<24}{'seconds, median':>16}{'least':>8}{'most':>8}")
    for name, each in seconds.items():
        print(f"{name:<24}{statistics.median(each):>16.3f}{min(each):>8.3f}{max(each):>8.3f}")
    for name, base in (("zones, tiers idle", "zones"), ("zones, tiers storing", "stock, offloading")):
        # Of the same round: what the machine did beside it was much the same.
        ratios = sorted(ours / theirs for ours, theirs in zip(seconds[name], seconds[base], strict=True))
        quarter = len(ratios) // 4
        middle = f"{statistics.median(ratios):.3f} (middle half {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})"
        print(f"{name} / {base}: {middle}")


if __name__ == "__main__":
    main()
