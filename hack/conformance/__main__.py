"""``python -m hack.conformance``: checks that vLLM's tests that pass with its classes pass with ours, too."""

import sys
import tempfile
import time
from pathlib import Path

from hack.conformance.comparison import compare, describe, read_reasons
from hack.conformance.kinds import by_kind
from hack.conformance.sides import NO_ZONE, TESTS, WITH_ONE_ZONE, run_sides
from hack.conformance.source import SourceError, installed_vllm
from hack.progress import CommandFailed

REASONS = Path(__file__).with_name("one_zone.toml")


def main() -> int:
    """Takes pytest's arguments, such as ``-k preempt``. Exit code 1: some test passes with stock classes only."""
    began = time.monotonic()
    chosen = sys.argv[1:]
    try:
        with tempfile.TemporaryDirectory() as folder:
            sides = {"stock": (), "no zone": NO_ZONE, "one zone": WITH_ONE_ZONE}
            outcomes = run_sides(Path(folder), sides, [TESTS, *chosen])
    except (SourceError, CommandFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    stock = outcomes["stock"]
    known = read_reasons(REASONS, installed_vllm())
    reasons = {test: reason for test, reason in known.items() if test in stock or not chosen}
    comparisons = {
        "no zone declared": compare(stock, outcomes["no zone"]),
        "one zone that owns the pool and each request": compare(stock, outcomes["one zone"], reasons),
    }
    for what, comparison in comparisons.items():
        print(f"\nvLLM {installed_vllm()}, {TESTS}, once with vLLM's classes and once with ours, {what}:")
        print(*describe(comparison), sep="\n")
        print("\nBy kinds of models and features, passed with both or with stock only:")
        print(*by_kind(comparison), sep="\n")
    conforms = all(comparison.conforms for comparison in comparisons.values())
    print(f"\n{'conforms' if conforms else 'does not conform'}; {time.monotonic() - began:.0f} s")
    return 0 if conforms else 1


if __name__ == "__main__":
    sys.exit(main())
