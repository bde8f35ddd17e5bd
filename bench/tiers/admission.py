"""Measures the stores and hits of a CPU memory tier by admission policy, for chats, agents and single prompts.

vLLM's real scheduler with the zones' connector and tier serves each load three times, in virtual time. There is no
model, and nothing is copied: each copy counts as done in the step after its request. Eight tenants send one request at
a time, each 30 seconds after the previous one:

- chats: as in `bench.tiers.sessions`, two sessions of each tenant, in which each of ten turns extends the prompt;
- agents: each task begins with the tools that all tasks of its tenant share, adds results in six steps, and ends;
- single prompts: no two prompts have a common prefix.

    python -m bench.tiers.admission
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from vllm.config import KVTransferConfig, VllmConfig
from vllm.v1.request import Request

# Import this module before the virtual clock is active, because modules imported later would use the real clock.
import tenantzone_runtime.engine.tiers.offloading_connector  # noqa: F401
from bench.tiers.steps import CHUNK_BYTES, Copies
from hack.harness.scheduler import Driver, make_scheduler, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.tiers import Admission, TierShare
from tenantzone_replay.simulation.clock import VirtualClock
from tenantzone_runtime.offloading_flags import TierFlags, kv_transfer_config

POOL_BLOCKS = 128
TENANTS = 8
SESSIONS = 2
TURNS, WORDS, ANSWER = 10, 86, 16
TASKS, STEPS, TOOLS, RESULT = 8, 6, 320, 120
SINGLE_PROMPTS, SINGLE_WORDS = 320, 500
SECONDS = 30.0
"""Time between two requests."""

Ask = Callable[[str, list[int], int], list[int]]
"""Function that sends a tenant's prompt, for an answer of the given number of tokens; returns prompt and answer."""


def main() -> None:
    """Serve each load with each admission policy, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tiers.admission",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pools", type=int, default=2, help="how often the pool fits into the tier (default: 2)")
    pools = parser.parse_args().pools
    print(f"{'':<16}{'admission':<12}{'requests':>9}{'found':>8}{'stored':>11}{'loaded':>11}{'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="tier-admission-") as folder:
        config = vllm_config(Path(folder))
        for name, load in {"chats": _chats, "agents": _agents, "single prompts": _single_prompts}.items():
            for admission in get_args(Admission):
                print(f"{name:<16}{admission:<12}{_serve(config, pools, load, admission).row()}", flush=True)


@dataclass(slots=True)
class Outcome:
    """The result of one load."""

    requests: int = 0
    prompt_tokens: int = 0
    found_tokens: int = 0
    stored: int = 0
    loaded: int = 0

    def row(self) -> str:
        """Returns the figures of a line, with the share of prompt tokens that was found, and sizes in MiB."""
        found = self.found_tokens / self.prompt_tokens
        stored, loaded = (chunks * CHUNK_BYTES / 2**20 for chunks in (self.stored, self.loaded))
        ratio = self.loaded / self.stored if self.stored else 0.0
        return f"{self.requests:>9}{found:>8.1%}{stored:>7.1f} MiB{loaded:>7.1f} MiB{ratio:>8.2f}"


def _serve(config: VllmConfig, pools: int, load: Callable[[Ask], None], admission: Admission) -> Outcome:
    clock, outcome = VirtualClock(), Outcome()
    with clock.in_force():
        config = copy(config)
        flags = TierFlags(pools * POOL_BLOCKS * CHUNK_BYTES)
        config.kv_transfer_config = KVTransferConfig(**json.loads(kv_transfer_config(flags)))
        driver = Driver(make_scheduler(config, POOL_BLOCKS))
        driver.copy = Copies().step
        tiers = (TierShare(tier="cpu", admission=admission),)
        driver.declare(*(ZoneConfig(name=name, tenant=name, generation=1, tiers=tiers) for name in _tenants()))

        def ask(tenant: str, tokens: list[int], answer: int) -> list[int]:
            request: Request = driver.send(tenant, tokens, max_tokens=answer)
            while driver.scheduler.has_requests():
                driver.step()
            outcome.requests += 1
            outcome.prompt_tokens += len(tokens)
            outcome.found_tokens += driver.cached_tokens(request)
            clock.seconds += SECONDS
            driver.scheduler.let_time_pass()
            return list(request.all_token_ids)

        load(ask)
        tier = driver.scheduler.tiers.served[0].tier
        outcome.stored = sum(counts.written for counts in tier.counts.values())
        outcome.loaded = sum(counts.hits for counts in tier.counts.values())
        driver.scheduler.shutdown()
    return outcome


def _tenants() -> Iterator[str]:
    return (f"tenant-{number}" for number in range(TENANTS))


def _chats(ask: Ask) -> None:
    chance = random.Random(1)
    chats: list[tuple[str, list[int]]] = [(tenant, []) for tenant in _tenants() for _ in range(SESSIONS)]
    for _ in range(TURNS):
        chats = [(tenant, ask(tenant, [*tokens, *_words(chance, WORDS)], ANSWER)) for tenant, tokens in chats]


def _agents(ask: Ask) -> None:
    chance = random.Random(2)
    tools = {tenant: _words(chance, TOOLS) for tenant in _tenants()}
    for _ in range(TASKS):
        tasks = dict(tools)
        for _ in range(STEPS):
            tasks = {tenant: ask(tenant, [*it, *_words(chance, RESULT)], ANSWER) for tenant, it in tasks.items()}


def _single_prompts(ask: Ask) -> None:
    chance, tenants = random.Random(3), list(_tenants())
    for number in range(SINGLE_PROMPTS):
        ask(tenants[number % TENANTS], _words(chance, SINGLE_WORDS), 1)


def _words(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(100, 1000) for _ in range(count)]


if __name__ == "__main__":
    main()
