"""Checks the promise of a token-time target in virtual time, with vLLM's real scheduler and 1 or 2 steps in flight.

Each load is random and has a flood; see ``loads.py``. The promise is ``token_time_bound``, which is printed next to the
measured times. The exit code is 1 if a load exceeds the bound, or if the bound exceeds the measured time by more than a
quarter.

    python -m bench.latency_targets
    python -m bench.latency_targets --long --loads 20
"""

import argparse
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.figures import percentile
from bench.latency_targets.loads import TARGET_SECONDS, Load, random_load
from bench.noisy_neighbour.arms import with_target
from bench.noisy_neighbour.asking import Answer
from bench.noisy_neighbour.virtual import make_driver
from bench.noisy_neighbour.virtual_tenants import VirtualTenants
from hack.harness.clock import Clock
from tenantzone_replay.simulation.virtual_engine import VirtualEngine

SEATS = 256
BUDGET = 8192
MOST_ABOVE = 1.25
"""The most that the bound may be relative to the measurement, if waiting prompts of the zone fit into the target."""
_FLOOD_SECONDS = 3.0
"""Time that the flood has before the zone's requests come."""
_WARM_SHARE = 0.5
"""The fraction of the zone's requests that come in addition, before anything is measured."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one load; times in seconds."""

    load: Load
    steps_in_flight: int
    measured: float
    """99th percentile of the time between two tokens."""
    waiting: float
    """99th percentile of the zone's prompts that waited at the same time."""
    flood_tokens_per_second: float

    @property
    def bound(self) -> float:
        return self.load.bound(self.waiting)

    @property
    def ratio(self) -> float:
        """The bound relative to the measurement."""
        return self.bound / self.measured


def run(load: Load, steps_in_flight: int) -> Outcome:
    """Runs one load: the flood first, then the zone's requests in addition to it."""
    arm = with_target(TARGET_SECONDS)
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
            percentile(_waiting(tenants.answers), 99),
            (tenants.flood_tokens - before) / (clock.seconds - began),
        )


def _waiting(answers: list[Answer]) -> list[float]:
    """Returns, for the arrival of each request, the number of requests without a first token, this one included."""
    return [float(sum(other.sent_at <= answer.sent_at < other.tokens_at[0] for other in answers)) for answer in answers]


def main() -> None:
    """Run all loads and print a line for each."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.latency_targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--loads", type=int, default=100, help="random loads (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="seed of the first load (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured, of each load (default: %(default)s)")
    parser.add_argument("--steps-in-flight", nargs="+", type=int, choices=(1, 2), default=[1, 2])
    parser.add_argument(
        "--long", action="store_true", help="prompts of the zone that do not fit into its target; only the bound counts"
    )
    parser.add_argument(
        "--stall-share", type=float, default=0.0, help="steps that take twice as long, which no promise covers (none)"
    )
    options = parser.parse_args()
    print("load  in flight  prompt + own  answer  requests/s  waiting  noise  overlap  p99, ms  bound, ms  bound / p99")
    outcomes = []
    for seed in range(options.first, options.first + options.loads):
        load = random_load(seed, options.seconds, long=options.long, stall_share=options.stall_share)
        for steps in options.steps_in_flight:
            outcomes.append(run(load, steps))
            print(_line(outcomes[-1]), flush=True)
    ratios = [outcome.ratio for outcome in outcomes]
    within = sum(outcome.ratio >= 1.0 for outcome in outcomes)
    print(
        f"{within} of {len(outcomes)} within the bound, which is at most "
        f"{1000 * max(outcome.bound for outcome in outcomes):.1f} ms; bound to measured: min {min(ratios):.2f}, "
        f"median {statistics.median(ratios):.2f}, max {max(ratios):.2f}"
    )
    sys.exit(within < len(outcomes) or (not options.long and max(ratios) > MOST_ABOVE))


def _line(outcome: Outcome) -> str:
    load, shape = outcome.load, outcome.load.shape
    return (
        f"{load.seed:>4}  {outcome.steps_in_flight:>9}  {shape.prefix_tokens:>6} + {shape.own_tokens:>4}  "
        f"{shape.answer_tokens:>6}  {shape.rate:>10.2f}  {outcome.waiting:>7.1f}  {load.noise:>5.3f}  "
        f"{load.overlaps!s:>7}  {1000 * outcome.measured:>7.1f}  {1000 * outcome.bound:>9.1f}  {outcome.ratio:>11.2f}"
        f"{'' if outcome.ratio >= 1.0 else '  exceeded'}"
    )


if __name__ == "__main__":
    main()
