"""Tests whether engines that lie and a bad network affect the honest pools of the same operator.

Zones of honest pools are changed at a steady rate: first undisturbed, then among engines that send every kind of false
report. In the third part one request in a thousand is also lost, broken, hung or refused. In the last part such faults
hit nearly every change, engines stop and start, and the operator is killed; changes may then take longer, but the final
state must be right. The exit code is 1 if a check failed. Run it on an otherwise idle machine.
"""

import argparse
import signal
import sys

from bench.operator.soak.run import EVERYTHING, FAULTS, LIARS, UNDISTURBED, Findings, soak
from bench.operator.soak.scene import Size

_MEMORY_MB = 256.0
"""Memory limit of the operator's container, in MB."""
_MAX_RATIO = 2.0
"""Maximum ratio of the p99 of changes in honest pools to the p99 of undisturbed changes."""


def main() -> int:
    """Run one soak and print its findings; returns the exit code, which is 1 if a check failed."""
    size = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    findings = soak(size)
    return 0 if show(findings) else 1


def show(findings: Findings) -> bool:
    """Print the findings; returns whether all checks passed."""
    print(
        f"\n{'changes of zones of honest pools':<38}{'changes':>9}{'p50 s':>8}{'p99 s':>8}{'longest':>9}{'late by':>9}"
    )
    for matter, taken in findings.taken.items():
        figures = taken.quantile(0.5), taken.quantile(0.99), taken.quantile(1.0), taken.late_seconds
        print(f"{matter:<38}{len(taken.seconds):>9,}{{:>8.2f}}{{:>8.2f}}{{:>9.2f}}{{:>9.2f}}".format(*figures))
    undisturbed = findings.taken[UNDISTURBED].quantile(0.99)
    is_well = not findings.wrong
    ratios = {matter: findings.taken[matter].quantile(0.99) / undisturbed for matter in (LIARS, FAULTS, EVERYTHING)}
    for matter in (LIARS, FAULTS):
        holds = ratios[matter] <= _MAX_RATIO
        is_well = is_well and holds
        print(_line(f"p99 {matter}, to undisturbed", f"{ratios[matter]:.2f}", holds, f"at most {_MAX_RATIO}"))
    print(f"{f'p99 {EVERYTHING}, to undisturbed':<60} {ratios[EVERYTHING]:>8.2f}")
    is_small = findings.peak_mb <= _MEMORY_MB
    print(_line("resident MB of the operator, at most", f"{findings.peak_mb:.0f}", is_small, f"of {_MEMORY_MB:.0f}"))
    reported = findings.lies
    print(f"{sum(reported.values()):,} lies were sent, each of {len(reported)} at least {min(reported.values())} times")
    print(f"{findings.faults} requests met a fault while these came here and there")
    print(f"networks: {', '.join(f'{name} {count}' for name, count in findings.networks.items())}")
    print(f"the operator was killed {findings.kills} times; {findings.absences} times an engine was away")
    print(f"{len(findings.wrong)} things are not as they should be in the end")
    for wrong in findings.wrong:
        print(f"  {wrong}")
    return is_well and is_small


def _line(name: str, value: str, holds: bool, bound: str) -> str:
    return f"{name:<60} {value:>8}   {'holds' if holds else 'DOES NOT HOLD'}, {bound}"


def _parse() -> Size:
    parser = argparse.ArgumentParser(
        prog="python -m bench.operator.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="after the set-up (default: %(default)s)")
    parser.add_argument("--zones", type=int, default=5000, help="default: %(default)s")
    parser.add_argument("--pools", type=int, default=50, help="with two engines each (default: %(default)s)")
    parser.add_argument("--namespaces", type=int, default=25, help="that the pools share (default: %(default)s)")
    parser.add_argument("--liars", type=int, default=10, help="each of another pool (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=3.0, help="changes per second (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens (default: %(default)s)")
    return Size(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
