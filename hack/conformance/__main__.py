"""``python -m conformance``: what passes with vLLM's classes passes with ours, or this says what does not."""

import sys
import tempfile
import time
from pathlib import Path

from conformance.comparison import compare, describe
from conformance.sides import TESTS, run_sides
from conformance.source import SourceError, pinned_vllm
from progress import CommandFailed


def main() -> int:
    """Takes pytest's arguments, such as ``-k preempt``. Exit code 1: some test passes with stock classes only."""
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            comparison = compare(*run_sides(Path(folder), [TESTS, *sys.argv[1:]]))
    except (SourceError, CommandFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\nvLLM {pinned_vllm()[0]}, {TESTS}, once with vLLM's classes and once with ours, no zone declared:")
    print(*describe(comparison), sep="\n")
    print(f"\n{'conforms' if comparison.conforms else 'does not conform'}; {time.monotonic() - began:.0f} s")
    return 0 if comparison.conforms else 1


if __name__ == "__main__":
    sys.exit(main())
