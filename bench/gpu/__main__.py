"""Measures stock vLLM and vLLM with zones side by side, on an NVIDIA GPU or, with ``--shape nano``, on CPUs.

Each phase has its own time limit, and each result is written as soon as it exists. A phase that fails, or engines that
do not start, end nothing but themselves; the exit code is then 1.
"""

import argparse
import asyncio
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.gpu.groups import GROUPS
from bench.gpu.machine import environment, has_gpu
from bench.gpu.results import FORMAT, Recorder, Run
from bench.gpu.runner import Settings, run_groups
from bench.gpu.shapes import SHAPES, Shape, shape_of_model, write_model

_ALL = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the phases that the command line names; returns the exit code."""
    options = _options(sys.argv[1:] if arguments is None else arguments)
    command = shlex.join(["python", "-m", "bench.gpu", *(sys.argv[1:] if arguments is None else arguments)])
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as name:
        folder = Path(options.folder or name)
        shape, model = _model(options, folder)
        recorder = Recorder(_run(command, shape, options.note), options.json)
        settings = Settings(shape, model, folder, range(1, options.seeds + 1), options.flags, _Progress())
        done = asyncio.run(run_groups(GROUPS, _phases(options.phases), settings, recorder))
    return 0 if done else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    names = [phase.name for group in GROUPS for phase in group.phases]
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", type=Path, metavar="FOLDER", help="a model with weights")
    model.add_argument(
        "--shape", choices=SHAPES, default="8b", help="dummy weights of this size (default: %(default)s)"
    )
    parser.add_argument(
        "--phases",
        nargs="+",
        choices=[_ALL, *(group.name for group in GROUPS), *names],
        default=[GROUPS[0].name],
        metavar="NAME",
        help=f"phases or groups, or all (default: %(default)s); phases: {', '.join(names)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results, after each phase")
    parser.add_argument("--seeds", type=int, default=2, help="repetitions of each measurement (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="an empty folder for models and logs, which stay there")
    parser.add_argument("--note", action="append", default=[], help="a remark about the machine, for the report")
    parser.add_argument(
        "--flags", nargs=argparse.REMAINDER, default=[], help="flags of vLLM for all engines; must come last"
    )
    return parser.parse_args(arguments)


def _model(options: argparse.Namespace, folder: Path) -> tuple[Shape, Path]:
    if options.model is not None:
        return shape_of_model(options.model, on_gpu=has_gpu()), options.model.resolve()
    shape = replace(SHAPES[options.shape], on_gpu=has_gpu())
    write_model(shape, folder / "model")
    return shape, folder / "model"


def _phases(named: Sequence[str]) -> set[str]:
    """The names of phases that names of phases and groups stand for."""
    return {
        phase.name
        for group in GROUPS
        for phase in group.phases
        if _ALL in named or group.name in named or phase.name in named
    }


def _run(command: str, shape: Shape, notes: list[str]) -> Run:
    return {
        "format": FORMAT,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "environment": environment(notes),
        "model": {"name": shape.name, "weights": shape.weights},
        "engines": {},
        "phases": [],
    }


class _Progress:
    """Prints lines of progress with the seconds since the run began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, message: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s | {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
