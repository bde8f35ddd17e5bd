"""Measures how often the zones' alerts would fire on ordinary days and in a flood, with several thresholds each.

The load is simulated, but the zone core and the Prometheus that evaluates the rules' expressions are real.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.alerts.findings import Day, tables
from bench.alerts.history import History
from bench.alerts.loads import Load, loads
from bench.alerts.queries import serving
from hack.debian import DebianError
from hack.progress import say

_PROGRESS_SECONDS = 2.0


def main() -> int:
    """Simulate the days, print how often the alerts would have fired, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.alerts", description=__doc__)
    parser.add_argument("--tenants", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    options = parser.parse_args()
    try:
        days = [_live(load) for load in loads(options.tenants, options.seed)]
    except DebianError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(tables(days)))
    return 0


def _live(load: Load) -> Day:
    simulation = load.simulation(load.plan)
    history = History(simulation)
    began = shown = time.monotonic()
    for _ in simulation.run():
        history.note()
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            simulated = f"{simulation.submitted:,} requests, {simulation.engine.now:,.0f} s simulated"
            say(load.name, f"{shown - began:.0f} s: {simulated}")
    with tempfile.TemporaryDirectory() as folder, serving(history, Path(folder)) as prometheus:
        day = Day(load, simulation.engine.now, simulation.summary.overall.hit_rate)
        day.look(prometheus, lambda what: say(load.name, f"asking for {what}"))
    return day


if __name__ == "__main__":
    sys.exit(main())
