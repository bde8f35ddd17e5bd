"""Measures the cost in a scheduling step of requests that wait for something other than blocks and seats.

vLLM's real scheduler with zones runs without a model. 64 requests of one tenant run and seats are free, so each step
looks for requests to admit. In the other arms, thousands of requests of another tenant also wait, for grammars that are
never compiled or for the slot of a LoRA adapter that never becomes free. The arms run alternately, step by step. The
CPU time of each step (`schedule()` and `update_from_output()`) is divided by that of the first arm, in which no request
waits.

    python -m bench.scheduler.deferred_steps                       # for grammars
    python -m bench.scheduler.deferred_steps --awaited adapter
"""

import argparse
import statistics
import tempfile
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest

from bench.figures import paired_ratios
from bench.scheduler.step_time.arm import Arm
from bench.scheduler.step_time.loads import LOADS
from bench.scheduler.step_time.turns import take_turns
from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config

LOAD = replace(LOADS["no-queue"], capacity=8_192, requests=64, tenants=2)
"""Load of two zones; the running requests belong to the first zone."""
WAITING = (0, 5_000, 20_000)
TARGET = 1.05
_FIRST_TENANT, _LAST_TENANT = "tenant-0", f"tenant-{LOAD.tenants - 1}"
_LONGEST = 4_000
"""Length of the answer that occupies the adapter slot, in tokens; more than the number of steps in the bench."""


class ArmWithWaiting(Arm):
    """A scheduler under the same load as the others, with additional requests that wait.

    Args:
        driver: the driver of the scheduler.
        waiting: the number of waiting requests.
    """

    def __init__(self, driver: Driver, waiting: int) -> None:
        super().__init__(driver, LOAD, LOAD.tenants)
        self.waiting = waiting

    def start(self) -> None:
        super().start()
        self._begin_waiting()
        for _ in range(self.waiting):
            self._send_waiting()

    def _begin_waiting(self) -> None:
        """Occupy the resource that the additional requests wait for."""

    def _send_waiting(self) -> None:
        """Send a request of the last tenant whose grammar is never compiled."""
        self._driver.send(_LAST_TENANT, prompt(3), max_tokens=5, grammar=Future())


class ArmWithAdapters(ArmWithWaiting):
    """A scheduler whose additional requests wait for an adapter slot, because another adapter occupies the only one."""

    def __init__(self, driver: Driver, waiting: int) -> None:
        super().__init__(driver, waiting)
        self._scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)

    def _begin_waiting(self) -> None:
        self._driver.send(_FIRST_TENANT, prompt(3), max_tokens=_LONGEST, adapter=_adapter(1))
        self._driver.step()

    def _send_waiting(self) -> None:
        self._driver.send(_LAST_TENANT, prompt(3), max_tokens=5, adapter=_adapter(2))


def _adapter(number: int) -> LoRARequest:
    return LoRARequest(lora_name=f"adapter-{number}", lora_int_id=number, lora_path="/nowhere")


ARMS = {"grammar": ArmWithWaiting, "adapter": ArmWithAdapters}


def main() -> None:
    """Time the steps of all arms in turn, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduler.deferred_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=1000, help="timed steps of each arm (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=100, help="steps before that (default: %(default)s)")
    parser.add_argument("--waiting", type=int, nargs="+", default=WAITING, help="default: 0 5000 20000")
    parser.add_argument("--awaited", choices=ARMS, default="grammar", help="default: %(default)s")
    options = parser.parse_args()
    assert options.steps + options.warm_up < _LONGEST, "the slot of the adapter would become free"
    with tempfile.TemporaryDirectory(prefix="deferred-steps-") as folder:
        config = vllm_config(Path(folder), sequences=LOAD.seats, max_batched_tokens=LOAD.step_tokens)
        arms = [
            ARMS[options.awaited](Driver(make_scheduler(config, LOAD.capacity)), count) for count in options.waiting
        ]
        take_turns(arms, options.warm_up, options.steps)
    _print(arms, options.awaited)


def _print(arms: list[ArmWithWaiting], awaited: str) -> None:
    print(f"{f'waiting for {awaited}s':>20}{'running':>9}{'step, median':>15}{'ratio: p25':>13}{'median':>9}{'p75':>9}")
    base = arms[0].record.times
    for arm in arms:
        times, running = arm.record.times, statistics.median(arm.record.running)
        low, middle, high = statistics.quantiles(paired_ratios(times, base), n=4)
        result = f"   {TARGET} {'met' if middle <= TARGET else 'missed'}" if arm is not arms[0] else ""
        print(
            f"{arm.waiting:>20,}{running:>9.0f}{statistics.median(times) * 1000:>12.3f} ms"
            f"{low:>13.3f}{middle:>9.3f}{high:>9.3f}{result}"
        )


if __name__ == "__main__":
    main()
