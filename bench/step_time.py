"""What zones cost in a scheduling step, as a ratio to vLLM's own scheduler.

All schedulers run in one process, without a model. 256 requests run; as some end, new ones come, half of whose prompts
are a prefix that their tenant has sent before: prefill and decode are mixed, prefixes are hit, and the pool of 64k
blocks is full, so that blocks are evicted all the time. The arms take turns, step by step, and what is compared is the
processor time that each needs for the same step. What a zone's engine does beside the steps, on a thread of its own, is
shown apart: it comes by the second, not by the step.
"""

import argparse
import gc
import statistics
import tempfile
import time
from pathlib import Path

from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.report import ConfigStatus
from tenantzone_runtime.engine.reporting import make_report
from tests.engine.harness import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config

RUNNING = 256
CAPACITY = 65_536
PROMPT_BLOCKS = 16
ANSWER_TOKENS = 100
TENANTS = 1000
HOUSEKEEPING_SECONDS = 0.1
REPORT_SECONDS = 1.0


class Arm:
    """One scheduler under the same load as the others."""

    def __init__(self, name: str, driver: Driver, zones: int) -> None:
        self.name = name
        self.times: list[float] = []
        self.beside = 0.0
        """Processor seconds beside the steps."""
        self._driver = driver
        self._zones = zones
        self._sent = 0
        self._kept_house = self._reported = time.perf_counter()
        if zones:
            tenants = [f"tenant-{number}" for number in range(zones)]
            driver.declare(*(ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in tenants))

    def fill(self) -> None:
        """Fill the pool with prompts that nobody asks for again."""
        distinct = 10_000_000
        while self._driver.scheduler.kv_cache_manager.block_pool.free_block_queue.num_free_blocks > PROMPT_BLOCKS * 2:
            before = self._driver.scheduler.kv_cache_manager.block_pool.free_block_queue.num_free_blocks
            for _ in range(RUNNING):
                self._send(prompt(PROMPT_BLOCKS, seed=distinct + self._sent), 1)
            while self._driver.scheduler.has_unfinished_requests():
                self._driver.step()
            free = self._driver.scheduler.kv_cache_manager.block_pool.free_block_queue.num_free_blocks
            if free >= before or self._sent * PROMPT_BLOCKS > CAPACITY:
                return

    def step(self) -> None:
        """Keep 256 requests going, then time one step."""
        while len(self._driver.scheduler.requests) < RUNNING:
            # Each tenant's prompts begin in the same way. Lengths differ, so that requests end in different steps.
            half = PROMPT_BLOCKS // 2
            shared = prompt(half, seed=self._sent % TENANTS, extra=0)
            own = prompt(half, seed=1_000_000 + self._sent)
            self._send(shared + own, ANSWER_TOKENS // 2 + self._sent * 37 % ANSWER_TOKENS)
        began = time.thread_time()
        self._driver.step()
        ended = time.thread_time()
        self.times.append(ended - began)
        if self._zones:
            self._keep_house(time.perf_counter())
            self.beside += time.thread_time() - ended

    def _send(self, tokens: list[int], answer: int) -> None:
        number = self._sent % TENANTS
        salt = {} if self._zones else {"client_salt": f"tenant-{number}"}
        tenant = f"tenant-{number % self._zones}" if self._zones else None
        self._driver.send(tenant, tokens, max_tokens=answer, **salt)
        self._sent += 1

    def _keep_house(self, now: float) -> None:
        scheduler = self._driver.scheduler
        if now - self._kept_house >= HOUSEKEEPING_SECONDS:
            self._kept_house = now
            scheduler.let_time_pass()
            scheduler.tenancy.ledger.trail.collect()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            make_report(scheduler, ConfigStatus(), pod="bench", started_unix_time=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="timed steps of each arm (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=300, help="steps before that (default: %(default)s)")
    parser.add_argument("--window", type=int, help="tokens that all layers see back (default: all, full attention)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arms = _arms(Path(folder), arguments.window)
        for arm in arms:
            print(f"{arm.name}: filling the pool", flush=True)
            arm.fill()
        # What stays for good must not be walked by the collector again and again, in whichever arm it falls.
        gc.collect()
        gc.freeze()
        total = arguments.warm_up + arguments.steps
        for number in range(total):
            if number == arguments.warm_up:
                began = time.perf_counter()
                for arm in arms:
                    arm.beside = 0.0
            # The order turns, so that none is always the one after another.
            for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
                arm.step()
            if number % 250 == 0:
                print(f"step {number} of {total}", flush=True)
    seconds = time.perf_counter() - began
    _print([(arm.name, arm.times[arguments.warm_up :]) for arm in arms])
    one, many = (arm.times[arguments.warm_up :] for arm in arms[2:])
    growth = statistics.median(theirs / mine for mine, theirs in zip(one, many, strict=True))
    print(f"\n{arms[3].name} against {arms[2].name}, step by step: {growth:.3f}")
    for arm in arms[2:]:
        print(f"{arm.name}: {arm.beside / seconds * 1000:.1f} ms of processor time a second beside the steps")


def _print(arms: list[tuple[str, list[float]]]) -> None:
    stock = arms[0][1]
    print(f"\n{'':<12}{'step, median':>14}{'p99':>12}   {'ratio to stock: p25':>20}{'median':>9}{'p75':>9}{'mean':>9}")
    for name, times in arms:
        ratios = [mine / theirs for mine, theirs in zip(times, stock, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if name != "stock" else (1.0, 1.0, 1.0)
        p99 = statistics.quantiles(times, n=100)[98]
        mean = sum(times) / sum(stock)
        print(
            f"{name:<12}{statistics.median(times) * 1000:>11.2f} ms{p99 * 1000:>9.2f} ms   "
            f"{low:>20.3f}{middle:>9.3f}{high:>9.3f}{mean:>9.3f}"
        )


def _arms(folder: Path, window: int | None) -> list[Arm]:
    config = vllm_config(folder, sequences=RUNNING, max_batched_tokens=RUNNING * BLOCK_TOKENS)

    def arm(name: str, count: int, *, zones: bool = True) -> Arm:
        return Arm(name, Driver(make_scheduler(config, CAPACITY, zones=zones, window=window)), count)

    return [arm("stock", 0, zones=False), arm("0 zones", 0), arm("1 zone", 1), arm("1,000 zones", 1000)]


if __name__ == "__main__":
    main()
