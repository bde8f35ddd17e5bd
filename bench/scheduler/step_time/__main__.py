"""``python -m bench.scheduler.step_time``: measures the cost of zones in a scheduling step."""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import bench.scheduler.step_time
from bench.scheduler.step_time.arm import Arm
from bench.scheduler.step_time.loads import LOADS, Load
from bench.scheduler.step_time.results import describe, rows
from bench.scheduler.step_time.turns import take_turns
from hack.harness.kv_caches import KINDS
from hack.harness.scheduler import Driver, make_scheduler, vllm_config

WINDOW_TARGET = 1.10
"""Maximum ratio to stock for models with a sliding window or several KV-cache groups."""
WINDOW = 128
"""Size of the sliding window in tokens, as in gpt-oss."""


def main() -> None:
    """Time the steps of each arm under each load, and print tables."""
    parser = argparse.ArgumentParser(
        description=bench.scheduler.step_time.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures of all loads there")
    arguments = parser.parse_args()
    kinds = tuple(arguments.kinds.split(" + ")) if arguments.kinds else ()
    window = arguments.window or (WINDOW if kinds else None)
    measured = []
    for name in arguments.loads:
        load = LOADS[name]
        if window:
            load = replace(load, targets={zones: max(target, WINDOW_TARGET) for zones, target in load.targets.items()})
        with tempfile.TemporaryDirectory() as folder:
            stock, arms = _arms(Path(folder), load, window, kinds)
            seconds = take_turns([stock, *arms], arguments.warm_up, arguments.steps)
        print(f"\n{load.title}:\n")
        print(*describe(stock.record, [arm.record for arm in arms], load.targets, seconds), sep="\n", flush=True)
        measured += [{"load": name, **row} for row in rows(stock.record, [arm.record for arm in arms])]
        if arguments.json:
            arguments.json.write_text(json.dumps(measured, indent=1))


def _arms(folder: Path, load: Load, window: int | None, kinds: tuple[str, ...]) -> tuple[Arm, list[Arm]]:
    def arm(seats: int, zones: int, *, ours: bool = True) -> Arm:
        config = vllm_config(folder, sequences=seats, max_batched_tokens=load.step_tokens)
        scheduler = make_scheduler(config, load.capacity, zones=ours, window=window, kinds=kinds)
        return Arm(Driver(scheduler), load, zones)

    return arm(load.stock_seats, 0, ours=False), [arm(load.seats, zones) for zones in load.zones]


if __name__ == "__main__":
    main()
