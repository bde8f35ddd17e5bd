"""Measures stock vLLM and vLLM with zones side by side, on an NVIDIA GPU or, with ``--shape nano``, on CPUs.

Each phase has its own time limit, and each result is written as soon as it exists. If a phase fails or engines do not
start, the other phases still run, and the exit code is 1. After Ctrl-C or SIGTERM the exit code is 130.
"""

import argparse
import asyncio
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.gpu.groups import GROUPS
from bench.gpu.machine import environment, has_gpu
from bench.gpu.options import ALL, DEFAULT_SHAPE, make_parser, problem
from bench.gpu.results import FORMAT, Recorder, Run
from bench.gpu.runner import Settings, run_groups
from bench.gpu.shapes import SHAPES, ModelError, Shape, shape_of_model, write_model

_INTERRUPTED: Final = 130
"""The exit code after Ctrl-C or SIGTERM."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the phases that the command line names; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = make_parser(__doc__, tuple(SHAPES), GROUPS)
    options = parser.parse_args(given)
    if wrong := problem(options, has_gpu=has_gpu()):
        parser.error(wrong)
    try:
        shape = _shape(options)
    except ModelError as error:
        parser.error(f"--model: {error}")
    # Handle SIGTERM as Ctrl-C from here on, so that the folder of the run is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(shlex.join(["python", "-m", "bench.gpu", *given]), options, shape)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(command: str, options: argparse.Namespace, shape: Shape) -> int:
    """Run the phases, and print the results if they were not written to a file; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="bench-gpu-", ignore_cleanup_errors=True) as name:
        folder = Path(options.folder or name)
        model = options.model or folder / "model"
        if options.model is None:
            write_model(shape, model)
        say = _Progress()
        recorder = Recorder(_new_run(command, shape, options.note), options.json, say)
        settings = Settings(shape, model.resolve(), folder, range(1, options.seeds + 1), options.flags, say)
        try:
            done = asyncio.run(_until_signal(run_groups(GROUPS, _phases(options.phases), settings, recorder)))
        except asyncio.CancelledError:
            return _INTERRUPTED
        finally:
            if not recorder.save():
                print(recorder.text(), end="")
    return 0 if done else 1


async def _until_signal(run: Coroutine[Any, Any, bool]) -> bool:
    """Await the run, and cancel it on Ctrl-C or SIGTERM."""
    task = asyncio.ensure_future(run)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


def _shape(options: argparse.Namespace) -> Shape:
    """Returns the shape that the command line selects.

    Raises:
        ModelError: the folder of ``--model`` has no usable config.
    """
    if options.model is not None:
        return shape_of_model(options.model, on_gpu=has_gpu())
    return replace(SHAPES[options.shape or DEFAULT_SHAPE], on_gpu=has_gpu())


def _phases(named: Sequence[str]) -> set[str]:
    """Returns the names of the phases that the user selected by name of the phase or of its group."""
    return {
        phase.name
        for group in GROUPS
        for phase in group.phases
        if ALL in named or group.name in named or phase.name in named
    }


def _new_run(command: str, shape: Shape, notes: list[str]) -> Run:
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
    """Prints progress lines, each with the seconds since the run began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, message: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s | {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
