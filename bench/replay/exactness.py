"""Tests whether the replay has the same cache hits as a real engine with the same requests, block for block.

A real vLLM engine on the CPU, stock or with zones, runs in a separate process. It gets prompts of real tokens, each
before a step with a known number, with several requests in flight. The replay gets only the prompts' lengths and
common prefixes, before the same steps. Then the bench compares the cached tokens of each request.

The requests are from the Mooncake trace, with a block of 32 tokens for each of the trace's parts of 512 tokens.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.demo.models import tiny_model
from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, RuntimeConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_replay.simulation.clock import VirtualClock
from tenantzone_replay.simulation.policies import changed, equal_zones
from tenantzone_replay.traces.load import Asked
from tenantzone_replay.traces.mix import mixed, parse_source
from tenantzone_replay.traces.tenants import with_tenants
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape, Prompt

BLOCK_TOKENS: Final = 32
TRACE: Final = Path(__file__).parents[1] / "traces/mooncake_conversation.jsonl.gz"
_LONGEST: Final = 2048
_MOST_PARTS: Final = 48
_SEATS: Final = 16
_STEP_TOKENS: Final = 1024
_TOKENS: Final = range(10, 200)
_TENANTS: Final = 4
_NEVER_QUIET: Final = Idle(after_seconds=86_400)
"""Idle setting with which zones never become idle, because that depends on real time, unlike virtual time."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, and the number of the step before which it is sent."""

    step: int
    asked: Asked


def load(requests: int, steps_per_second: float) -> Iterator[Sent]:
    """Yields the trace's first requests, scaled down."""
    source = parse_source(f"{TRACE},requests={requests}")
    for asked in with_tenants(mixed([source]), _TENANTS, "zipf"):
        content = asked.content[:_MOST_PARTS]
        known = len(content) * BLOCK_TOKENS
        small = Asked(
            arrival=asked.arrival,
            prompt_tokens=known + 1 + asked.prompt_tokens % 7,
            output_tokens=1 + asked.output_tokens % 24,
            content=content,
            content_tokens=BLOCK_TOKENS,
            known_tokens=known,
            tenant=asked.tenant,
        )
        yield Sent(int(asked.arrival * steps_per_second), small)


def zones_config(blocks: int) -> RuntimeConfig:
    """Returns a config of zones with equal reservations."""
    tenants = [f"tenant-{number}" for number in range(_TENANTS)]
    zones = tuple(changed(zone, idle=_NEVER_QUIET) for zone in equal_zones(tenants, blocks))
    return make_config(1, PoolConfig(namespace="bench", name="pool"), zones)


def replayed(sent: Sequence[Sent], blocks: int, *, zones: bool) -> list[int]:
    """Returns the number of cached tokens of each request in the replay."""
    from tenantzone_runtime.engine.modelless.schedulers import ModellessScheduler

    shape = EngineShape(blocks, BLOCK_TOKENS, _SEATS, _STEP_TOKENS, _LONGEST)
    clock, found = VirtualClock(), [0] * len(sent)
    with tempfile.TemporaryDirectory() as folder, clock.in_force():
        scheduler = ModellessScheduler(shape, Path(folder), zones_config(blocks) if zones else None)
        for due in _by_step(sent):
            for number in due:
                asked = sent[number].asked
                prompt = Prompt(number, asked.prompt_tokens, asked.content, BLOCK_TOKENS, asked.known_tokens)
                scheduler.send(str(number), asked.tenant, prompt, asked.output_tokens, arrival=clock.seconds)
            if scheduler.scheduler.has_requests():
                for output in scheduler.update(*scheduler.schedule()):
                    if output.prefill_stats is not None:
                        found[int(output.request_id)] = output.prefill_stats.num_cached_tokens
            elif due is NOTHING_LEFT:
                break
    return found


def served(sent: Sequence[Sent], blocks: int, *, zones: bool, folder: Path) -> list[int]:
    """Returns the number of cached tokens of each request in a real engine, which runs in this process."""
    engine = _engine(blocks, zones=zones, folder=folder)
    found = [0] * len(sent)
    for due in _by_step(sent):
        for number in due:
            _add(engine, number, sent[number].asked, zones=zones)
        if engine.has_unfinished_requests():
            for output in engine.step():
                found[int(output.request_id)] = output.num_cached_tokens or 0
        elif due is NOTHING_LEFT:
            break
    return found


NOTHING_LEFT: Final[list[int]] = []


def _by_step(sent: Sequence[Sent]) -> Iterator[list[int]]:
    """Yields the numbers of the requests that are sent before each step; endlessly empty after the last request."""
    coming = list(enumerate(sent))[::-1]
    step = 0
    while coming:
        due = []
        while coming and coming[-1][1].step <= step:
            due.append(coming.pop()[0])
        step += 1
        yield due
    while True:
        yield NOTHING_LEFT


def _engine(blocks: int, *, zones: bool, folder: Path) -> Any:
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    options: dict[str, Any] = {}
    if zones:
        options["scheduler_cls"] = "tenantzone_runtime.engine.scheduler.ZoneScheduler"
        config = Path(os.environ["TENANTZONE_CONFIG_DIR"])
        config.mkdir()
        (config / CONFIG_KEY).write_text(dump_config(zones_config(blocks)))
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=str(folder / "tiny"),
            dtype="float32",
            enforce_eager=True,
            block_size=BLOCK_TOKENS,
            num_gpu_blocks_override=blocks + 1,
            max_model_len=_LONGEST,
            max_num_seqs=_SEATS,
            max_num_batched_tokens=_STEP_TOKENS,
            **options,
        )
    )
    if zones:
        zones_there = engine.engine_core.engine_core.scheduler.tenancy.ledger.zones
        while len(zones_there) < _TENANTS:
            time.sleep(0.01)
    return engine


def _add(engine: Any, number: int, asked: Asked, *, zones: bool) -> None:
    from vllm.sampling_params import SamplingParams

    from tenantzone_contract.keys.salt import tenant_salt
    from tenantzone_runtime.seal import SEAL_ARGUMENT, seal

    tokens = [token for part in asked.content for token in random.Random(part).choices(_TOKENS, k=BLOCK_TOKENS)]
    own = asked.prompt_tokens - asked.known_tokens
    tokens += random.Random(f"own {number}").choices(_TOKENS, k=own)
    params = SamplingParams(max_tokens=asked.output_tokens, ignore_eos=True, temperature=0)
    prompt: dict[str, Any] = {"prompt_token_ids": tokens}
    if zones:
        prompt["cache_salt"] = salt = tenant_salt(bytes(32), asked.tenant, "")
        key = bytes.fromhex(os.environ["TENANTZONE_SEAL_KEY"])
        params.extra_args = {SEAL_ARGUMENT: seal(key, asked.tenant, salt)}
    engine.add_request(str(number), prompt, params)


def compared(real: Sequence[int], replay: Sequence[int], sent: Sequence[Sent]) -> str:
    """Returns a sentence with the hits of both, and the number of requests with equal hits."""
    same = sum(a == b for a, b in zip(real, replay, strict=True))
    prompts = sum(each.asked.prompt_tokens for each in sent)
    by_tenant: Mapping[str, int] = Counter(each.asked.tenant for each in sent)
    return (
        f"{sum(real):,} of {prompts:,} prompt tokens found by the engine, {sum(replay):,} in the replay; the same in "
        f"{same} of {len(sent)} requests of {len(by_tenant)} tenants"
    )


def measure(sent: Sequence[Sent], requests: int, steps_per_second: float, blocks: int, *, zones: bool) -> list[int]:
    """Returns the number of cached tokens of each request in a real engine, which runs in a separate process."""
    with tempfile.TemporaryDirectory(prefix="replay-exactness-") as name:
        folder = Path(name)
        tiny_model.make(folder / "tiny")
        arguments = [str(requests), str(steps_per_second), str(blocks), str(int(zones)), name]
        environment = {
            "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TENANTZONE_CONFIG_DIR": f"{name}/config",
            "TENANTZONE_SEAL_KEY": bytes(range(32)).hex(), "TENANTZONE_ADMIN_HOST": "127.0.0.1",
            "TENANTZONE_ADMIN_PORT": "0", "TENANTZONE_STATE_DIR": f"{name}/state",
        }  # fmt: skip
        (folder / "state").mkdir()
        subprocess.run(
            [sys.executable, "-m", "bench.replay.exactness", "--serve", *arguments],
            env={**os.environ, **environment}, check=True, stdout=sys.stderr,
        )  # fmt: skip
        found: list[int] = json.loads((folder / "found.json").read_text())
        return found


def _serve(requests: str, steps_per_second: str, blocks: str, zones: str, name: str) -> None:
    sent = list(load(int(requests), float(steps_per_second)))
    found = served(sent, int(blocks), zones=zones == "1", folder=Path(name))
    (Path(name) / "found.json").write_text(json.dumps(found))
    # Exit without waiting for vLLM's threads.
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Print a line for stock vLLM and one for zones."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay.exactness", description=__doc__)
    parser.add_argument("--requests", type=int, default=600, help="of the trace (default: %(default)s)")
    parser.add_argument("--steps-per-second", type=float, default=1.5, help="of the trace (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=600, help="of the engine (default: %(default)s)")
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(*options.serve)
        return
    sent = list(load(options.requests, options.steps_per_second))
    for name, zones in (("stock", False), ("zones", True)):
        real = measure(sent, options.requests, options.steps_per_second, options.blocks, zones=zones)
        print(f"{name}: {compared(real, replayed(sent, options.blocks, zones=zones), sent)}", flush=True)


if __name__ == "__main__":
    main()
