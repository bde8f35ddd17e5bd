"""Measures the additional memory of zones compared with stock vLLM, in bytes per KV-cache block.

vLLM's real scheduler runs without a model, once with vLLM's classes and once with TenantZone's, each in a separate
process. Both go through the same states: all blocks in use, all cached, half of them in use again, each prefix hit,
all prefixes replaced by new ones, and none left. In each state the bench measures the memory that Python has allocated
(tracemalloc). The difference between both is the bookkeeping of zones. A second run without tracemalloc shows the
difference in the memory of the whole process, as a check.

The memory of an empty zone is printed per zone, and not included in the bytes per block.
"""

import argparse
import gc
import multiprocessing
import statistics
import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from hack.harness.kv_caches import BLOCK_TOKENS
from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES

TARGET_BYTES = 200
SIZES = (1 << 14, 1 << 16, 90_112, 1 << 18)
"""Numbers of blocks. Python's dictionaries grow by powers of two; with 90,112 entries they are mostly empty."""

PROMPTS = 2048
"""Number of prompts that fill the pool."""

AT_A_TIME = 16
"""Number of concurrent requests in states with cached blocks."""

ANSWER_TOKENS = 2
TURNOVERS = 2


@dataclass(frozen=True, slots=True)
class Arm:
    """A scheduler and its zones; stock vLLM if ``zones`` is 0."""

    name: str
    zones: int
    spec: dict[str, Any] = field(default_factory=dict)


ARMS = (
    Arm("stock", 0),
    Arm("1 zone", 1),
    Arm("1,000 zones", 1000),
    *(
        Arm(f"1 zone, {policy} and scrub", 1, {"eviction_policy": policy, "scrub": "OnTransfer"})
        for policy in EVICTION_POLICIES
    ),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory in one state, when the state was reached."""

    state: str
    traced: int
    """Bytes that Python has allocated since before the scheduler was created; 0 without tracemalloc."""
    resident: int
    """Resident memory of the process, in bytes."""
    blocks: tuple[int, int]
    """Number of blocks in use, and number of cached blocks."""


class Life:
    """A scheduler that goes through all states."""

    def __init__(self, arm: Arm, capacity: int, folder: Path) -> None:
        self._tenants = [f"tenant-{number}" for number in range(max(1, arm.zones))]
        self._zones = arm.zones > 0
        self._prompt_blocks = capacity // PROMPTS
        config = vllm_config(folder, sequences=PROMPTS, max_batched_tokens=capacity * BLOCK_TOKENS)
        self._driver = Driver(make_scheduler(config, capacity, zones=self._zones))
        self._spec = arm.spec
        self._pool = self._driver.scheduler.kv_cache_manager.block_pool
        self._sent = 0

    def states(self) -> Iterator[str]:
        """Yields the name of each state when the scheduler has reached it."""
        yield "no zone declared"
        if self._zones:
            zones = (ZoneConfig(name=name, tenant=name, generation=1, **self._spec) for name in self._tenants)
            self._driver.declare(*zones)
        yield "zones declared"
        self._start(PROMPTS)
        yield "all in use"
        self._finish()
        self._ask(PROMPTS)
        yield "all cached"
        self._start(PROMPTS // 2)
        yield "half in use"
        self._finish()
        self._ask(PROMPTS)
        # Repeat the prompts in the order in which they were sent, so that each is still cached in its turn.
        self._ask(PROMPTS, first=self._sent - PROMPTS)
        yield "all hit"
        for _ in range(TURNOVERS):
            self._ask(PROMPTS)
        yield f"{TURNOVERS} turnovers later"
        assert self._driver.scheduler.reset_prefix_cache()
        yield "all free again"

    def blocks(self) -> tuple[int, int]:
        """Returns the number of blocks in use, and the number of cached blocks."""
        in_use = sum(1 for block in self._pool.blocks if block.ref_cnt > 0)
        cached = sum(1 for block in self._pool.blocks if block.ref_cnt == 0 and block.block_hash is not None)
        return in_use, cached

    def _ask(self, prompts: int, first: int | None = None) -> None:
        """Send prompts and complete their answers; new prompts, or earlier ones again from number ``first`` on."""
        for done in range(0, prompts, AT_A_TIME):
            count = min(AT_A_TIME, prompts - done)
            self._send(count, first=None if first is None else first + done)
            self._finish()

    def _start(self, prompts: int) -> None:
        """Send new prompts and run until all are computed, but their answers are not complete."""
        self._send(prompts)
        scheduler = self._driver.scheduler
        while scheduler.waiting or any(request.is_prefill_chunk for request in scheduler.running):
            self._driver.step()

    def _finish(self) -> None:
        while self._driver.scheduler.has_unfinished_requests():
            self._driver.step()
        self._driver.finished.clear()

    def _send(self, count: int, first: int | None = None) -> None:
        start = self._sent if first is None else first
        for number in range(start, start + count):
            # The answer fits into the prompt's last block, so that the request needs no further block.
            tokens = prompt(self._prompt_blocks, seed=number, extra=-ANSWER_TOKENS)
            tenant = self._tenants[number % len(self._tenants)]
            salt: dict[str, Any] = {} if self._zones else {"client_salt": tenant}
            self._driver.send(tenant if self._zones else None, tokens, max_tokens=ANSWER_TOKENS, **salt)
        if first is None:
            self._sent += count


def live(arm: Arm, capacity: int, traced: bool) -> list[Sample]:
    """Go through all states in this process, which must not have run a scheduler before."""
    process = psutil.Process()
    samples = []
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        if traced:
            tracemalloc.start()
        before = process.memory_info().rss
        life = Life(arm, capacity, Path(folder))
        for state in life.states():
            gc.collect()
            now = tracemalloc.get_traced_memory()[0]
            samples.append(Sample(state, now, process.memory_info().rss - before, life.blocks()))
    return samples


def main() -> None:
    """Measure each arm in a separate process, and print its bytes per block with the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--blocks", type=int, nargs="+", default=SIZES, help="sizes of pools (default: 16k, 64k, 88k, 256k)"
    )
    options = parser.parse_args()
    if min(options.blocks) < 2 * PROMPTS:
        parser.error(f"--blocks: {2 * PROMPTS:,} at least")
    with tempfile.TemporaryDirectory() as folder:
        # Run once before the measurements, so that modules imported on first use are not counted.
        for arm in ARMS:
            list(Life(arm, PROMPTS * 2, Path(folder)).states())
    excesses: list[tuple[float, str]] = []
    for capacity in options.blocks:
        lives = []
        for arm in ARMS:
            print(f"{capacity:,} blocks, {arm.name}", flush=True)
            lives.append((_in_fresh_process(arm, capacity, True), _in_fresh_process(arm, capacity, False)))
        for arm, ours in zip(ARMS[1:], lives[1:], strict=True):
            excesses += _print(arm, capacity, ours, lives[0])
    bytes_per_block = [excess for excess, _ in excesses]
    most, where = max(excesses)
    print(
        f"\nour own, over all these states: least {min(bytes_per_block):.0f}, "
        f"median {statistics.median(bytes_per_block):.0f}, most {most:.0f} bytes per block ({where}); "
        f"the target is under {TARGET_BYTES}"
    )


def _in_fresh_process(arm: Arm, capacity: int, traced: bool) -> list[Sample]:
    # Fork the process, so that all modules are imported and each run starts from the same state.
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(live, (arm, capacity, traced))


def _print(
    arm: Arm,
    capacity: int,
    ours: tuple[Sequence[Sample], Sequence[Sample]],
    stock: tuple[Sequence[Sample], Sequence[Sample]],
) -> list[tuple[float, str]]:
    """Print the table of one arm; returns the bytes per block of zones in each state, with the state's name."""
    zones = ours[0][1].traced - ours[0][0].traced
    print(f"\n{capacity:,} blocks, {arm.name}; each zone alone: {zones / arm.zones:,.0f} bytes")
    print(f"{'bytes per block':<20}{'in use':>10}{'cached':>10}{'stock':>10}{'ours':>10}{'our own':>10}{'process':>10}")
    excesses = []
    states = zip(ours[0], stock[0], ours[1], stock[1], strict=True)
    for index, (mine, theirs, my_process, their_process) in enumerate(states):
        assert mine.blocks == theirs.blocks, (
            f"{mine.state}: {mine.blocks} blocks in use and cached, not {theirs.blocks}"
        )
        own = (mine.traced - theirs.traced - (zones if index else 0)) / capacity
        process = (my_process.resident - their_process.resident) / capacity
        print(
            f"{mine.state:<20}{mine.blocks[0]:>10,}{mine.blocks[1]:>10,}{theirs.traced / capacity:>10.0f}"
            f"{mine.traced / capacity:>10.0f}{own:>10.0f}{process:>10.0f}"
        )
        excesses.append((own, f"{capacity:,} blocks, {arm.name}, {mine.state}"))
    return excesses


if __name__ == "__main__":
    main()
