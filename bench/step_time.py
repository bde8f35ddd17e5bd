"""What zones cost in a scheduling step, as a ratio to vLLM's own scheduler.

All schedulers run in one process, without a model: 256 requests decode, and new prompts come and go, so that the pool
is full and blocks are evicted all the time. The arms take turns, step by step, and what is compared is the time that
each needs for the same step; the median over all steps is printed.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tenantzone_contract.config import ZoneConfig
from tests.engine.harness import Driver, make_scheduler, prompt, vllm_config

RUNNING = 256
CAPACITY = 16_384
PROMPT_BLOCKS = 8
ANSWER_TOKENS = 100
WARM_UP_STEPS = 100


class Arm:
    """One scheduler under the same load as the others."""

    def __init__(self, name: str, driver: Driver, zones: int) -> None:
        self.name = name
        self.times: list[float] = []
        self._driver = driver
        self._tenants = [f"tenant-{number}" for number in range(zones)]
        self._sent = 0
        if zones:
            driver.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in self._tenants))

    def step(self) -> None:
        """Keep 256 requests going, then time one step."""
        while len(self._driver.scheduler.requests) < RUNNING:
            tenant = self._tenants[self._sent % len(self._tenants)] if self._tenants else None
            # Lengths differ, so that requests end and begin in different steps.
            answer = ANSWER_TOKENS // 2 + self._sent * 37 % ANSWER_TOKENS
            self._driver.send(tenant, prompt(PROMPT_BLOCKS, seed=self._sent), max_tokens=answer)
            self._sent += 1
        began = time.perf_counter()
        self._driver.step()
        self.times.append(time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500, help="timed steps of each arm (default: %(default)s)")
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        arms = _arms(Path(folder))
        for number in range(WARM_UP_STEPS + steps):
            # The order turns, so that none is always the one after another.
            for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
                arm.step()
            if number % 250 == 0:
                print(f"step {number} of {WARM_UP_STEPS + steps}", flush=True)
    stock = arms[0].times[WARM_UP_STEPS:]
    print(f"\n{'':<12}{'step, median':>14}{'ratio to stock, median':>26}")
    for arm in arms:
        times = arm.times[WARM_UP_STEPS:]
        ratio = statistics.median(mine / theirs for mine, theirs in zip(times, stock, strict=True))
        print(f"{arm.name:<12}{statistics.median(times) * 1000:>11.2f} ms{ratio:>26.3f}")


def _arms(folder: Path) -> list[Arm]:
    config = vllm_config(folder, sequences=RUNNING)
    arms = [Arm("stock", Driver(make_scheduler(config, CAPACITY, zones=False)), 0)]
    for zones in (0, 1, 1000):
        arms.append(Arm(f"{zones:,} zones", Driver(make_scheduler(config, CAPACITY)), zones))
    return arms


if __name__ == "__main__":
    main()
