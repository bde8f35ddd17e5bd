"""Counts Python's steps, for tests of cost that a busy machine does not disturb."""

import sys
from collections.abc import Callable


def steps_of(work: Callable[[], object]) -> int:
    """How often Python calls a function, or resumes a generator, during `work`."""
    steps = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return steps
