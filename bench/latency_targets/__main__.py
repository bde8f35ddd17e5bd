"""Checks the promise of a token-time target in virtual time, with vLLM's real scheduler and 1 or 2 steps in flight.

Each load is a random one with a flood: see ``loads.py``. The promise is ``token_time_bound``, which this prints in
addition to what was measured.

    python -m bench.latency_targets --loads 100
"""

import argparse
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.end_to_end.results import percentile
from bench.latency_targets.loads import TARGET_SECONDS, Load, random_load
from bench.noisy_neighbour.arms import Arm, with_target
from bench.noisy_neighbour.virtual import make_driver
from bench.noisy_neighbour.virtual_tenants import VirtualTenants
from hack.harness.clock import Clock
from tenantzone_replay.virtual_engine import VirtualEngine

SEATS = 256
BUDGET = 8192
_FLOOD_SECONDS = 3.0
"""Time that the flood has before the zone's requests come."""
_WARM_SHARE = 0.5
"""The fraction of the zone's requests that come in addition, before anything is measured."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one load showed."""

    load: Load
    steps_in_flight: int
    measured: float
    """99th percentile of the seconds between two tokens."""
    first_token: float
    """99th percentile of the seconds to the first token."""
    flood_tokens_per_second: float

    @property
    def bound(self) -> float:
        return self.load.bound(self.steps_in_flight)

    @property
    def is_within(self) -> bool:
        return self.measured <= self.bound


def run(load: Load, steps_in_flight: int, arm: Arm | None = None) -> Outcome:
    """Run one load: the flood first, then the zone's requests beside it."""
    arm = arm or with_target(TARGET_SECONDS)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, clock.in_force():
        hardware = load.hardware()
        driver = make_driver(Path(folder), arm, hardware, seats=SEATS, budget=BUDGET)
        tenants = VirtualTenants(driver, clock, arm, load.shape, load.seed)
        engine = VirtualEngine(driver, clock, hardware, tenants, steps_in_flight=steps_in_flight)
        tenants.flood(load.flood_at_once)
        until = clock.seconds + _FLOOD_SECONDS
        engine.run(lambda: clock.seconds >= until)
        tenants.ask_quietly(math.ceil(_WARM_SHARE * load.shape.requests))
        engine.run(lambda: tenants.is_quiet_done)
        tenants.answers = []
        began, before = clock.seconds, tenants.flood_tokens
        tenants.ask_quietly()
        engine.run(lambda: tenants.is_quiet_done)
        return Outcome(
            load,
            steps_in_flight,
            percentile([seconds for answer in tenants.answers for seconds in answer.token_seconds], 99),
            percentile([answer.first_token_seconds for answer in tenants.answers], 99),
            (tenants.flood_tokens - before) / (clock.seconds - began),
        )


def main() -> None:
    """Run all loads and print a line for each; exit with 1 if one of them broke the promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=100, help="random loads (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="seed of the first load (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured, of each load (default: %(default)s)")
    parser.add_argument("--steps-in-flight", nargs="+", type=int, choices=(1, 2), default=[1, 2])
    options = parser.parse_args()
    print("load  in flight  prompt + own  answer  requests/s  noise  overlap  p99, ms  bound, ms  bound / p99")
    outcomes = []
    for seed in range(options.first, options.first + options.loads):
        load = random_load(seed, options.seconds)
        for steps in options.steps_in_flight:
            outcome = run(load, steps)
            outcomes.append(outcome)
            shape = load.shape
            print(
                f"{seed:>4}  {steps:>9}  {shape.prefix_tokens:>6} + {shape.own_tokens:>4}  {shape.answer_tokens:>6}  "
                f"{shape.rate:>10.2f}  {load.noise:>5.3f}  {load.overlaps!s:>7}  {1000 * outcome.measured:>7.1f}  "
                f"{1000 * outcome.bound:>9.1f}  {outcome.bound / outcome.measured:>11.2f}"
                f"{'' if outcome.is_within else '  exceeded'}",
                flush=True,
            )
    ratios = [outcome.bound / outcome.measured for outcome in outcomes]
    within = sum(outcome.is_within for outcome in outcomes)
    print(
        f"{within} of {len(outcomes)} within the bound; bound to measured: min {min(ratios):.2f}, "
        f"median {statistics.median(ratios):.2f}, max {max(ratios):.2f}"
    )
    sys.exit(within < len(outcomes))


if __name__ == "__main__":
    main()
