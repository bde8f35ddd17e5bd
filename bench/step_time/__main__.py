"""``python -m bench.step_time``: what zones cost in a scheduling step."""

import argparse
import gc
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import bench.step_time
from bench.step_time.arm import Arm
from bench.step_time.loads import LOADS, Load
from bench.step_time.results import describe
from hack.harness.kv_caches import BLOCK_TOKENS, KINDS
from hack.harness.scheduler import Driver, make_scheduler, vllm_config

MAX_BATCHED_TOKENS = 256 * BLOCK_TOKENS
WINDOW_TARGET = 1.10
"""For models with a window or several groups of KV caches."""
WINDOW = 128
"""Tokens, as gpt-oss has it."""


def main() -> None:
    """Time the steps of each arm under each load, and print tables."""
    parser = argparse.ArgumentParser(
        description=bench.step_time.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), help="default: all of them")
    parser.add_argument("--steps", type=int, default=1500, help="timed steps of each arm (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=300, help="steps before that (default: %(default)s)")
    parser.add_argument("--window", type=int, help="tokens that all layers see back (default: all, full attention)")
    parser.add_argument(
        "--kinds",
        choices=[" + ".join(kinds) for kinds in KINDS if len(kinds) > 1],
        help="of the model's layers, a group of KV caches for each (default: one group); windows are "
        f"{WINDOW} tokens wide if --window says nothing else",
    )
    arguments = parser.parse_args()
    kinds = tuple(arguments.kinds.split(" + ")) if arguments.kinds else ()
    window = arguments.window or (WINDOW if kinds else None)
    for name in arguments.loads:
        load = LOADS[name]
        if window:
            load = replace(load, targets={zones: max(target, WINDOW_TARGET) for zones, target in load.targets.items()})
        with tempfile.TemporaryDirectory() as folder:
            stock, arms = _arms(Path(folder), load, window, kinds)
            seconds = _measure([stock, *arms], arguments.warm_up, arguments.steps)
        print(f"\n{load.title}:\n")
        print(*describe(stock.record, [arm.record for arm in arms], load.targets, seconds), sep="\n", flush=True)


def _arms(folder: Path, load: Load, window: int | None, kinds: tuple[str, ...]) -> tuple[Arm, list[Arm]]:
    def arm(seats: int, zones: int, *, ours: bool = True) -> Arm:
        config = vllm_config(folder, sequences=seats, max_batched_tokens=MAX_BATCHED_TOKENS)
        scheduler = make_scheduler(config, load.capacity, zones=ours, window=window, kinds=kinds)
        return Arm(Driver(scheduler), load, zones)

    return arm(load.stock_seats, 0, ours=False), [arm(load.seats, zones) for zones in load.zones]


def _measure(arms: list[Arm], warm_up: int, steps: int) -> float:
    """Let the arms take turns. Returns how many seconds the timed steps took, all arms' together."""
    for arm in arms:
        _say(f"starting, {arm.zones} zones")
        arm.start()
    # What stays for good must not be walked by the collector again and again, in whichever arm it falls.
    gc.collect()
    gc.freeze()
    for number in range(warm_up + steps):
        if number % 250 == 0:
            _say(f"step {number} of {warm_up + steps}")
        if number == warm_up:
            began = time.perf_counter()
            for arm in arms:
                arm.forget()
        # The order turns, so that none is always the one after another.
        for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
            arm.step()
    gc.unfreeze()
    return time.perf_counter() - began


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
