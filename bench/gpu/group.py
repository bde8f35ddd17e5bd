"""The interface of a group of phases, and the inputs of each phase."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.engines import Engine, EngineSpec
from bench.gpu.load import Workers
from bench.gpu.shapes import Shape


class NotPossible(Exception):
    """A phase cannot run on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a phase works with.

    Attributes:
        engines: the running engines by the name of their `EngineSpec`; all are healthy when a phase begins.
        shape: the model and the sizes of the loads.
        seeds: a phase repeats its measurement once for each.
        workers: the processes that send load.
        folder: an empty folder of the phase's own.
        say: prints a line of progress. Call it when each step begins, and at least every two seconds in a long one.
        keep: records the results so far, in place of earlier ones. Call it after each measurement: what was kept stays
            in the file if the phase fails, exceeds its limit or is interrupted.
        start: starts engines that only this phase needs and stops them afterwards; gets what to start and the seconds
            until it gives up, and raises `EngineError` where an engine does not start, or ends while the phase uses it.
    """

    engines: Mapping[str, Engine]
    shape: Shape
    seeds: Sequence[int]
    workers: Workers
    folder: Path
    say: Callable[[str], None]
    keep: Callable[[Mapping[str, Any]], None]
    start: Callable[[Sequence[EngineSpec], float], AbstractAsyncContextManager[Mapping[str, Engine]]]


@dataclass(frozen=True, slots=True)
class Phase:
    """One measurement.

    Attributes:
        name: as ``--phases`` and the results name it; unique among all groups.
        limit_seconds: the runner cancels the phase after this time and records it as timed out.
        run: measures, and returns the results for the JSON file. It must not block the event loop: long blocking work
            belongs into `asyncio.to_thread`. It raises `NotPossible` where this machine cannot run it; any other
            exception fails the phase and no other one.
    """

    name: str
    limit_seconds: float
    run: Callable[[Context], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Group:
    """Phases that share one start of their engines.

    Attributes:
        name: as ``--phases`` and the results name it.
        engines: which engines to start, side by side, for a shape. It raises `NotPossible` where this machine cannot
            run them. It may write models or adapters into the folder that it gets.
        phases: in the order in which they run.
        start_seconds: the runner gives up a start that takes longer.
    """

    name: str
    engines: Callable[[Shape, Path], Sequence[EngineSpec]]
    phases: tuple[Phase, ...]
    start_seconds: float = 600.0
