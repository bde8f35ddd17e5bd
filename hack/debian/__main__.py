"""``python -m hack.debian PROGRAM ...``: gets programs and prints where they are, one per line."""

import argparse
import sys

from hack.debian.programs import PROGRAMS, DebianError, ensure


def main() -> int:
    """Get the programs that were named and print their paths; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.debian", description=__doc__)
    parser.add_argument("program", nargs="+", choices=sorted(PROGRAMS))
    try:
        for name in parser.parse_args().program:
            print(ensure(name))
    except DebianError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
