"""Runs the zone core for days in virtual time, to check that its memory does not grow with its history.

The soak counts the objects in each attribute of the core. The bounded tables are full after half a day, and from then
on no count may grow. The exit code is 1 if a count has grown.
"""

import argparse
import gc
import sys
import time
import tracemalloc
from typing import Final

from bench.soak.days import DAY_SECONDS, Days
from bench.soak.kept import FEW, MAX_GROWTH

PROGRESS_SECONDS: Final = 2.0


def main() -> int:
    """Simulate days and print the counts of objects; returns the exit code, which is 1 if a count has grown."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=7, help="simulated ones (default: %(default)s)")
    parser.add_argument("--zones", type=int, default=1000, help="that are declared (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens (default: %(default)s)")
    options = parser.parse_args()
    if options.days < 2:
        parser.error("--days: 2 at least, or there is nothing to compare")
    tracemalloc.start()
    days = Days(options.zones, options.seed)
    sizes: list[int] = []
    began = shown = time.monotonic()
    for day in range(1, options.days + 1):
        for now in days.live_a_day():
            if time.monotonic() - shown > PROGRESS_SECONDS:
                shown = time.monotonic()
                print(f"  {shown - began:4.0f} s: day {day}, {now % DAY_SECONDS / 3600:.1f} h", flush=True)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
        print(f"day {day}: {sizes[-1] / 2**20:.2f} MiB, {days.events.total():,} events so far", flush=True)
    return _print(days, sizes)


def _print(days: Days, sizes: list[int]) -> int:
    print("\nevents: " + ", ".join(f"{kind} {count:,}" for kind, count in sorted(days.events.items())))
    print(f"\n{'on average':<40}{'first day':>12}{'last day':>12}")
    for name, (first, last) in days.averages.by_name().items():
        if max(first, last) > FEW:
            print(f"{name:<40}{first:>12,.0f}{last:>12,.0f}")
    grown = days.averages.grown()
    for name, (first, last) in grown.items():
        print(f"GREW: {name}, from {first:,.0f} to {last:,.0f}", file=sys.stderr)
    print(f"\nmemory after the last day: {sizes[-1] / sizes[0]:.3f} of that after the first")
    return 1 if grown or sizes[-1] > MAX_GROWTH * sizes[0] else 0


if __name__ == "__main__":
    sys.exit(main())
