"""Prints how much a borrower learns about a lender's activity, in bits per second, and the cost of revealing less.

The bench runs in virtual time with the real zone core and arbiter. `bench.attacks.lending.occupancy` describes the
attack, and `bench.attacks.lending.cost` the load under which the cost is measured.
"""

import argparse

from bench.attacks.lending.cost import WARM_UP_SECONDS, Found, cost
from bench.attacks.lending.information import Information
from bench.attacks.lending.occupancy import LEVELS, Leak, leak
from bench.attacks.lending.scene import Terms
from tenantzone_contract.zone_config.zone_terms import Lending

_TERMS = (
    Terms("lends, idle.after 2s"),
    Terms("lends, idle.after 60s", idle_after_seconds=60.0),
    Terms("lendable: 0", lending=Lending(lendable=0)),
    Terms("borrower's limit: its own", is_borrower_confined=True),
)
_SECRETS = {
    "whether it does anything": (0, LEVELS // 2),
    f"how much it does, of {LEVELS} levels": tuple(range(LEVELS)),
}


def main() -> None:
    """Attack under all terms, and print the tables."""
    options = _options()
    for secret, levels in _SECRETS.items():
        print(
            leaks(secret, {terms.name: leak(terms, levels, options.rounds) for terms in _TERMS}, options.rounds), "\n"
        )
    print(costs({terms.name: cost(terms, options.seconds) for terms in _TERMS}))


def leaks(secret: str, found: dict[str, Leak], rounds: int) -> str:
    """Returns a table of the information about one secret, with a line for each set of terms."""
    entropy = next(iter(found.values())).entropy
    lines = [
        f"{secret}: {entropy:.2f} bits a round, {rounds:,} rounds",
        f"{'':<28}{'round':>8}{'bits a round by evictions':>28}{'by waits':>18}{'by both':>18}{'bits/s':>10}",
    ]
    for name, each in found.items():
        bits = f"{_bits(each.by_evictions):>28}{_bits(each.by_waits):>18}{_bits(each.by_both):>18}"
        lines.append(f"{name:<28}{each.round_seconds:>6.0f} s{bits}{each.bits_per_second:>10.4f}")
    return "\n".join(lines)


def costs(found: dict[str, Found]) -> str:
    """Returns a table of cache hits, with a line for each set of terms."""
    lines = [f"{'prompts found in the cache':<28}{'borrower':>10}{'lender':>10}"]
    lines += [f"{name:<28}{each.borrower:>10.1%}{each.lender:>10.1%}" for name, each in found.items()]
    return "\n".join(lines)


def _bits(information: Information) -> str:
    """Format the estimate in bits, followed by its bias in parentheses."""
    return f"{information.bits:.3f} ({information.bias:.3f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks.lending",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=2000, help="under each terms (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2000.0, help="of load, virtual (default: %(default)s)")
    options = parser.parse_args()
    if options.seconds < 3 * WARM_UP_SECONDS:
        parser.error(f"--seconds: {3 * WARM_UP_SECONDS:g} or more; of the first {WARM_UP_SECONDS:g} nothing is counted")
    return options


if __name__ == "__main__":
    main()
