"""Progress of a bench, for the person who waits for its result."""

import sys


def say(message: str) -> None:
    """Print a line on standard error, because standard output is for results."""
    print(message, file=sys.stderr, flush=True)
