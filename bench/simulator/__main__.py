"""The real zone core and its arbiter under a simulated engine, with the invariants checked in each step.

Stops with exit code 1 at the first promise that is broken, and says where. The same seed gives the same run.
"""

import argparse
import sys
import time

from bench.simulator.checks import Violation
from bench.simulator.engine import Model
from bench.simulator.simulation import Plan, Simulation

PROGRESS_SECONDS = 2.0


def main() -> int:
    """Run the simulations that were asked for and print their summaries; returns the exit code."""
    options = _parse()
    runs: list[Simulation] = []
    for lending in {"on": [True], "off": [False], "both": [True, False]}[options.lending]:
        plan = Plan(
            requests=options.requests,
            tenants=options.tenants,
            seed=options.seed,
            trace=options.trace,
            lending=lending,
            speed=options.speed,
            model=Model(capacity=options.blocks),
        )
        print(_headline(plan), flush=True)
        simulation = Simulation(plan)
        try:
            _run(simulation)
        except Violation as violation:
            print(f"\nBROKEN: {violation}", file=sys.stderr)
            return 1
        runs.append(simulation)
    if len(runs) == 2:
        print("\n".join(_comparison(*runs)))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--tenants", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of load and configs (default: %(default)s)")
    parser.add_argument("--trace", action="store_true", help="replay the Mooncake trace; default: a generated load")
    parser.add_argument("--lending", choices=("on", "off", "both"), default="on", help="default: %(default)s")
    parser.add_argument("--blocks", type=int, default=Model().capacity, help="of the engine (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=1.0, help="how much denser the load is (default: %(default)s)")
    return parser.parse_args()


def _headline(plan: Plan) -> str:
    load = "the trace" if plan.trace else "a generated load"
    return (
        f"{plan.requests:,} requests of {load}, {plan.tenants} tenants, {plan.model.capacity:,} blocks, "
        f"seed {plan.seed}, lending {'on' if plan.lending else 'off'}"
    )


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


def _comparison(on: Simulation, off: Simulation) -> list[str]:
    """What lending is good for: the same load and reservations with and without it."""
    lines = [f"{'lending':<10}{'hit rate':>10}{'missed prompt tokens':>24}{'mean wait':>12}"]
    totals = {"on": on.summary.overall, "off": off.summary.overall}
    for name, total in totals.items():
        missed = total.prompt_tokens - total.hit_tokens
        lines.append(f"{name:<10}{total.hit_rate:>10.1%}{missed:>24,}{total.mean_wait:>10.2f} s")
    missed_on, missed_off = (total.prompt_tokens - total.hit_tokens for total in totals.values())
    lines.append(f"misses with lending against without: {missed_on / max(1, missed_off) - 1:+.1%}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
