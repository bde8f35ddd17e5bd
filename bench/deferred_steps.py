"""What requests that wait for their grammars cost in a scheduling step.

vLLM's real scheduler with zones, without a model: 64 requests of one tenant run, and seats are free, so each step looks
for requests to admit. In the other arms, thousands of requests of another tenant wait for grammars that are never
compiled. The arms take turns, step by step. Each step's processor time (`schedule()` and `update_from_output()`) is
divided by that of the first arm, in which no request waits.

    python -m bench.deferred_steps
"""

import argparse
import statistics
import tempfile
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from bench.step_time.__main__ import MAX_BATCHED_TOKENS
from bench.step_time.arm import Arm
from bench.step_time.loads import LOADS
from bench.step_time.turns import take_turns
from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config

LOAD = replace(LOADS["no-queue"], capacity=8_192, requests=64, tenants=2)
"""Of two zones. The requests that run are the first one's."""
WAITING = (0, 5_000, 20_000)
TARGET = 1.05


class ArmWithWaiting(Arm):
    """A scheduler under the same load as the others, in which further requests wait for grammars.

    Args:
        driver: of the scheduler.
        waiting: the number of requests whose grammars are never compiled.
    """

    def __init__(self, driver: Driver, waiting: int) -> None:
        super().__init__(driver, LOAD, LOAD.tenants)
        self.waiting = waiting
        self._last_tenant = f"tenant-{LOAD.tenants - 1}"

    def start(self) -> None:
        super().start()
        for _ in range(self.waiting):
            self._driver.send(self._last_tenant, prompt(3), max_tokens=5, grammar=Future())


def main() -> None:
    """Time the steps of all arms in turn, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.deferred_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=1000, help="timed steps of each arm (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=100, help="steps before that (default: %(default)s)")
    parser.add_argument("--waiting", type=int, nargs="+", default=WAITING, help="default: 0 5000 20000")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deferred-steps-") as folder:
        config = vllm_config(Path(folder), sequences=LOAD.seats, max_batched_tokens=MAX_BATCHED_TOKENS)
        arms = [ArmWithWaiting(Driver(make_scheduler(config, LOAD.capacity)), count) for count in options.waiting]
        take_turns(arms, options.warm_up, options.steps)
    _print(arms)


def _print(arms: list[ArmWithWaiting]) -> None:
    print(f"{'waiting for grammars':>20}{'running':>9}{'step, median':>15}{'ratio: p25':>13}{'median':>9}{'p75':>9}")
    base = arms[0].record.times
    for arm in arms:
        times, running = arm.record.times, statistics.median(arm.record.running)
        ratios = [mine / theirs for mine, theirs in zip(times, base, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        result = f"   {TARGET} {'met' if middle <= TARGET else 'missed'}" if arm is not arms[0] else ""
        print(
            f"{arm.waiting:>20,}{running:>9.0f}{statistics.median(times) * 1000:>12.3f} ms"
            f"{low:>13.3f}{middle:>9.3f}{high:>9.3f}{result}"
        )


if __name__ == "__main__":
    main()
