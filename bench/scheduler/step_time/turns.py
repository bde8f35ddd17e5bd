"""Runs arms alternately, step by step, so that other load on the machine affects all arms alike."""

import gc
import time
from collections.abc import Sequence

from bench.progress import say
from bench.scheduler.step_time.arm import Arm


def take_turns(arms: Sequence[Arm], warm_up: int, steps: int) -> float:
    """Start the arms and run ``warm_up`` plus ``steps`` steps of each; returns the total seconds of the timed steps."""
    for number, arm in enumerate(arms, start=1):
        say(f"starting {number} of {len(arms)}: {arm.zones} zones")
        arm.start()
    # Freeze permanent objects, so that garbage collections do not traverse them during the steps of some arm.
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    for number in range(warm_up + steps):
        if number % 250 == 0:
            say(f"step {number} of {warm_up + steps}")
        if number == warm_up:
            began = time.perf_counter()
            for arm in arms:
                arm.forget()
        # Rotate the order, so that an arm does not always follow the same other arm.
        turn = number % len(arms)
        for arm in [*arms[turn:], *arms[:turn]]:
            arm.step()
    gc.unfreeze()
    return time.perf_counter() - began
