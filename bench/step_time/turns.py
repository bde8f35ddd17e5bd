"""Lets arms take turns, step by step, so that other load of the machine affects all alike."""

import gc
import sys
import time
from collections.abc import Sequence

from bench.step_time.arm import Arm


def take_turns(arms: Sequence[Arm], warm_up: int, steps: int) -> float:
    """Start the arms and let each make ``warm_up`` and ``steps`` steps; returns the total seconds of the timed ones."""
    for number, arm in enumerate(arms, start=1):
        _say(f"starting {number} of {len(arms)}: {arm.zones} zones")
        arm.start()
    # What stays for good must not be walked by the collector again and again, in whichever arm it falls.
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    for number in range(warm_up + steps):
        if number % 250 == 0:
            _say(f"step {number} of {warm_up + steps}")
        if number == warm_up:
            began = time.perf_counter()
            for arm in arms:
                arm.forget()
        # The order turns, so that none is always the one after another.
        turn = number % len(arms)
        for arm in [*arms[turn:], *arms[:turn]]:
            arm.step()
    gc.unfreeze()
    return time.perf_counter() - began


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
