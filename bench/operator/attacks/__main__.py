"""Tests whether a reservation changes under all attacks at once, while operators and engines are replaced one by one.

Two replicas of the operator and a KV-cache manager run. Zones are changed at a steady rate, for a tenth of the minutes
undisturbed: half of that time before the attacks, and half after them. During the attacks, zones are changed at the
same rate while objects are forged and deleted, ports get slow and excessive clients, engines lie, and replicas and
engines are replaced one after the other. Engines read each version of a ConfigMap at once, and demand signed configs.

The exit code is 1 if an engine enforced a false reservation for longer than is tolerated, if a check of the final state
failed, or if the p99 of changes under attack was more than twice the p99 of undisturbed changes. Run it on an otherwise
idle machine.
"""

import argparse
import signal
import sys

from bench.operator.attacks.run import ATTACKED, UNDISTURBED, Attacked, Findings, soak
from bench.operator.scenarios import quantile
from bench.operator.soak.scene import Size

_MAX_RATIO = 2.0
"""Maximum ratio of the p99 of changes under attack to the p99 of undisturbed changes."""
_SHOWN = 20


def main() -> int:
    """Run one soak and print its findings; returns the exit code, which is 1 if a check failed."""
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    size = Size(
        minutes=options.minutes,
        zones=options.zones,
        pools=options.pools,
        namespaces=options.namespaces,
        liars=options.liars,
        rate=options.rate,
        seed=options.seed,
    )
    attacked = Attacked(
        frequency=options.frequency,
        patience=options.patience,
        tolerance=options.tolerance,
        rounds=options.rounds,
        only=tuple(options.only),
    )
    return 0 if show(soak(size, attacked), attacked.tolerance) else 1


def show(findings: Findings, tolerance: float) -> bool:
    """Print the findings as Markdown; returns whether all checks passed."""
    print("\n| attack | carried out | refused | unanswered | what should happen | happened | p50 s | longest s |")
    print("|---|---:|---:|---:|---|---:|---:|---:|")
    for name, tally in findings.tallies.items():
        seconds = sorted(tally.seconds)
        times = f"{quantile(seconds, 0.5):.1f} | {seconds[-1]:.1f}" if seconds else "- | -"
        counts = f"{tally.carried_out} | {tally.refused} | {tally.unanswered} | {tally.undone} | {len(seconds)}"
        print(f"| {name} | {counts} | {times} |")
    print(f"| lies of engines | {findings.lies} | - | - | no row but their own changes | - | - | - |")
    print("\n| changes of zones | changes | p50 s | p99 s | longest s |")
    print("|---|---:|---:|---:|---:|")
    taken = {matter: sorted(each.seconds) for matter, each in findings.taken.items()}
    for matter, seconds in (*taken.items(), (f"{ATTACKED}, while an operator led all the time", findings.led)):
        figures = " | ".join(f"{quantile(seconds, part):.2f}" for part in (0.5, 0.99, 1.0)) if seconds else "- | - | -"
        print(f"| {matter} | {len(seconds):,} | {figures} |")
    ratio = quantile(taken[ATTACKED], 0.99) / quantile(taken[UNDISTURBED], 0.99)
    is_quick = ratio <= _MAX_RATIO
    result = "holds" if is_quick else "DOES NOT HOLD"
    print(f"\np99 under attack, to undisturbed: {ratio:.2f} ({result}, at most {_MAX_RATIO})")
    late = max(each.late_seconds for each in findings.taken.values())
    print(f"the measuring process itself was late by at most {late:.2f} s")
    print(
        f"{findings.operator_restarts} operators and {findings.engine_restarts} engines were replaced; "
        f"{len(findings.leaderless)} times no operator led, for {max(findings.leaderless, default=0.0):.1f} s at most"
    )
    print(f"resident MB of an operator, at most: {findings.peak_mb:.0f}")
    print(
        f"{findings.comparisons:,} reservations of engines were compared; {len(findings.breaches):,} were false for a "
        f"while, for {findings.longest_seconds:.1f} s at most while an operator led ({tolerance:.0f} s are tolerated)"
    )
    print(f"{len(findings.changed)} reservations changed")
    print(f"{len(findings.wrong)} things were not as they should be in the end")
    for wrong in (findings.changed + findings.wrong)[:_SHOWN]:
        print(f"  {wrong}")
    return is_quick and not findings.changed and not findings.wrong


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.operator.attacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="under attack (default: %(default)s)")
    parser.add_argument("--zones", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--pools", type=int, default=20, help="with two engines each (default: %(default)s)")
    parser.add_argument("--namespaces", type=int, default=10, help="that the pools share (default: %(default)s)")
    parser.add_argument("--liars", type=int, default=4, help="each of another pool (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=3.0, help="changes per second (default: %(default)s)")
    parser.add_argument("--frequency", type=float, default=1.0, help="of attacks, as a multiple (default: %(default)s)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="how often both operators and each engine are replaced; 0: nothing is (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        metavar="WORD",
        help="attacks whose names contain one of the words (default: all)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=6.0,
        metavar="SECONDS",
        help="how long an engine may hold a forged config: the operator looks every 5 s (default: %(default)s)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        help="until attacks must be undone, as a multiple: more on a machine that is busy (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of what happens (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
