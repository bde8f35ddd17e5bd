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
    """The inputs of a phase.

    Attributes:
        engines: the running engines by the name of their `EngineSpec`; all are healthy when a phase begins.
        shape: the model and the sizes of the loads.
        seeds: the seeds; a phase repeats its measurement once for each seed.
        workers: the processes that send load.
        folder: an empty folder for this phase only.
        say: prints a progress line. Call it when a step begins, and at least every two seconds in a long step.
        keep: records the results so far, in place of earlier ones. Call it after each measurement, so that the results
            stay in the file if the phase fails, exceeds its limit or is interrupted.
        start: starts engines that only this phase needs, and stops them afterwards. It takes the engines to start and a
            time limit in seconds, and raises `EngineError` if an engine does not start, or exits during the phase.
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
        name: the phase's name in ``--phases`` and the results, unique among all groups.
        limit_seconds: the time after which the runner cancels the phase and records it as timed out.
        run: measures, and returns the results for the JSON file. It must not block the event loop: run blocking work by
            `asyncio.to_thread`. It raises `NotPossible` if this machine cannot run the phase; any other exception fails
            this phase only.
    """

    name: str
    limit_seconds: float
    run: Callable[[Context], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Group:
    """Phases that share one start of their engines.

    Attributes:
        name: the group's name in ``--phases`` and the results.
        engines: returns the engines to start side by side for a shape. It raises `NotPossible` if this machine cannot
            run them. It may write models or adapters into the folder that it gets.
        phases: the phases, in the order in which they run.
        start_seconds: the maximum time for the engines to start.
    """

    name: str
    engines: Callable[[Shape, Path], Sequence[EngineSpec]]
    phases: tuple[Phase, ...]
    start_seconds: float = 600.0
