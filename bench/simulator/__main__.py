"""Runs the real zone core and its arbiter in a simulated engine, and checks the invariants in each step.

Prints the first violation of an invariant and stops with exit code 1. Equal seeds give equal runs.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from bench.simulator.checks import Violation
from bench.simulator.engine import Model
from bench.simulator.simulation import Plan, Simulation
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES

PROGRESS_SECONDS = 2.0


def main() -> int:
    """Run the simulations that the user selected and print their summaries; returns the exit code."""
    options = _parse()
    runs: dict[str, Simulation] = {}
    for name, plan in _plans(options).items():
        print(_headline(plan), flush=True)
        simulation = Simulation(plan)
        try:
            _run(simulation)
        except Violation as violation:
            print(f"\nBROKEN: {violation}", file=sys.stderr)
            return 1
        runs[name] = simulation
    if len(runs) > 1:
        print("\n".join(_comparison(runs)))
    return 0


def _plans(options: argparse.Namespace) -> dict[str, Plan]:
    """Returns the plans to run, by the name in the comparison."""
    one = Plan(
        requests=options.requests,
        tenants=options.tenants,
        seed=options.seed,
        trace=options.trace,
        speed=options.speed,
        model=Model(capacity=options.blocks),
    )
    lending = {"on": [True], "off": [False], "both": [True, False]}[options.lending]
    policies = list(EVICTION_POLICIES) if options.eviction_policy == "each" else [options.eviction_policy]
    plans = [
        replace(one, lending=lends, eviction_policy=policy) for lends, policy in itertools.product(lending, policies)
    ]
    return {_terms(plan): plan for plan in plans}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--tenants", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of load and configs (default: %(default)s)")
    parser.add_argument("--trace", action="store_true", help="replay the Mooncake trace; default: a generated load")
    parser.add_argument("--lending", choices=("on", "off", "both"), default="on", help="default: %(default)s")
    parser.add_argument(
        "--eviction-policy",
        choices=(*EVICTION_POLICIES, "each"),
        help="of all zones, or one run with each (default: each zone has one by chance)",
    )
    parser.add_argument("--blocks", type=int, default=Model().capacity, help="of the engine (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=1.0, help="how much denser the load is (default: %(default)s)")
    return parser.parse_args()


def _headline(plan: Plan) -> str:
    load = "the trace" if plan.trace else "a generated load"
    return (
        f"{plan.requests:,} requests of {load}, {plan.tenants} tenants, {plan.model.capacity:,} blocks, "
        f"seed {plan.seed}, {_terms(plan)}"
    )


def _terms(plan: Plan) -> str:
    lending = f"lending {'on' if plan.lending else 'off'}"
    return lending if plan.eviction_policy is None else f"{lending}, {plan.eviction_policy}"


def _run(simulation: Simulation) -> None:
    began = shown = time.monotonic()
    for _ in simulation.run():
        now = time.monotonic()
        if now - shown >= PROGRESS_SECONDS:
            shown = now
            engine = simulation.engine
            print(
                f"  {now - began:4.0f} s: {simulation.submitted:,} sent, {simulation.summary.ended:,} ended, "
                f"{len(engine.running)} running, {len(engine.waiting)} waiting, {len(engine.ledger.zones)} zones, "
                f"{engine.now:,.0f} simulated seconds",
                flush=True,
            )
    elapsed = time.monotonic() - began
    print("\n" + "\n".join(simulation.summary.lines()))
    print(f"digest {simulation.digest}")
    print(f"{simulation.submitted / elapsed:,.0f} requests a second, {elapsed:.1f} s\n", flush=True)


def _comparison(runs: Mapping[str, Simulation]) -> list[str]:
    """Returns a table that compares runs of the same load and reservations; misses are relative to the first run."""
    totals = {name: simulation.summary.overall for name, simulation in runs.items()}
    missed = {name: total.prompt_tokens - total.hit_tokens for name, total in totals.items()}
    first = max(1, next(iter(missed.values())))
    lines = [f"{'':<20}{'hit rate':>10}{'missed prompt tokens':>24}{'':>8}{'mean wait':>12}"]
    for name, total in totals.items():
        lines.append(
            f"{name:<20}{total.hit_rate:>10.1%}{missed[name]:>24,}{missed[name] / first - 1:>+8.1%}"
            f"{total.mean_wait:>10.2f} s"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
