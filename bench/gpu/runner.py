"""Runs groups one after the other: starts their engines, limits the time of each phase, and records every outcome."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.engines import Engine, EngineSpec, watched
from bench.gpu.group import Context, Group, NotPossible, Phase
from bench.gpu.load import Workers
from bench.gpu.results import Recorder, Status
from bench.gpu.shapes import Shape

_LONGEST_WHY = 4000
_LONGEST_BEGIN_OF_WHY = 1000
"""Characters kept from the start of a reason, which is the error; a reason's last part is the end of a log."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that all groups of a run share.

    Attributes:
        shape: the model's shape.
        model: the folder of the model.
        folder: an existing folder for engines and phases.
        seeds: the seeds of the measurements.
        flags: the user's flags for all engines.
        say: prints a progress line.
    """

    shape: Shape
    model: Path
    folder: Path
    seeds: Sequence[int]
    flags: Sequence[str]
    say: Callable[[str], None]


async def run_groups(groups: Sequence[Group], names: Collection[str], settings: Settings, recorder: Recorder) -> bool:
    """Run the named phases of groups.

    Args:
        groups: the groups, whose engines start and stop in turn.
        names: the names of the phases to run; groups without such a phase are skipped.
        settings: the settings of the run.
        recorder: receives each result as soon as it exists.

    Returns:
        Whether no phase failed or ran out of time.

    Raises:
        asyncio.CancelledError: the run was interrupted; the phase in progress is recorded as interrupted.
    """
    async with Workers() as workers:
        for group in groups:
            phases = [phase for phase in group.phases if phase.name in names]
            if phases:
                await _run_group(group, phases, settings, recorder, workers)
    return all(phase["status"] in ("done", "not possible here") for phase in recorder.run["phases"])


async def _run_group(
    group: Group, phases: Sequence[Phase], settings: Settings, recorder: Recorder, workers: Workers
) -> None:
    folder = settings.folder / group.name
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        try:
            folder.mkdir()
            settings.say(f"{group.name}: starting engines")
            specs = await asyncio.to_thread(group.engines, settings.shape, folder)
            engines = await stack.enter_async_context(_started(specs, folder, group.start_seconds, settings))
        except (Exception, asyncio.CancelledError) as error:
            status, why = _outcome(error, "the engines were starting")
            for phase in phases:
                _record(recorder, group, phase, began, status, why, {})
            settings.say(f"{group.name}: the engines did not start: {why}")
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for name, engine in engines.items():
            recorder.add_engine(group.name, name, {"command": engine.command, "ready_seconds": engine.ready_seconds})
        for phase in phases:
            await _run_phase(group, phase, folder, engines, settings, recorder, workers)


@asynccontextmanager
async def _started(
    specs: Sequence[EngineSpec], folder: Path, limit_seconds: float, settings: Settings
) -> AsyncIterator[Mapping[str, Engine]]:
    """Start engines side by side, each with its own folder, and stop them afterwards.

    Raises:
        EngineError: an engine did not start.
    """
    engines: dict[str, Engine] = {}
    try:
        for spec in specs:
            own = folder / spec.name
            own.mkdir(parents=True)
            engines[spec.name] = Engine(spec, settings.shape, settings.model, own, settings.flags)
        try:
            async with asyncio.TaskGroup() as waiting:
                for engine in engines.values():
                    waiting.create_task(engine.wait_ready(limit_seconds, settings.say))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        yield engines
    finally:
        await asyncio.gather(*(engine.stop() for engine in engines.values()))


async def _run_phase(
    group: Group,
    phase: Phase,
    folder: Path,
    engines: Mapping[str, Engine],
    settings: Settings,
    recorder: Recorder,
    workers: Workers,
) -> None:
    own = folder / f"phase-{phase.name}"

    progress = _Progress(lambda message: settings.say(f"{phase.name}: {message}"))
    starts = itertools.count(1)
    began = time.monotonic()
    results: dict[str, Any] = {}

    @asynccontextmanager
    async def start(specs: Sequence[EngineSpec], limit: float) -> AsyncIterator[Mapping[str, Engine]]:
        folder_of_start = own / f"start-{next(starts)}"
        async with _started(specs, folder_of_start, limit, settings) as started, watched(started.values()):
            yield started

    def keep(measured: Mapping[str, Any]) -> None:
        results.update(measured)
        _record(recorder, group, phase, began, "interrupted", progress.last, results)

    context = Context(engines, settings.shape, settings.seeds, workers, own, progress.say, keep, start)
    progress.say("begins")
    status: Status = "done"
    why = ""
    try:
        own.mkdir()
        async with asyncio.timeout(phase.limit_seconds), watched(engines.values()):
            results.update(await phase.run(context))
    except (Exception, asyncio.CancelledError) as error:
        status, why = _outcome(error, progress.last)
        if isinstance(error, asyncio.CancelledError):
            raise
    finally:
        progress.say(f"{status} after {time.monotonic() - began:.1f} s{': ' if why else ''}{why}")
        _record(recorder, group, phase, began, status, why, results)


class _Progress:
    """Prints progress lines and remembers the last one."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.last = ""
        self._say = say

    def say(self, message: str) -> None:
        self.last = message
        self._say(message)


def _outcome(error: BaseException, last_said: str) -> tuple[Status, str]:
    """Returns the status and the reason of a phase that ended with an exception.

    Args:
        error: the exception that ended the phase.
        last_said: the last progress line, which becomes the reason if the phase timed out.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, NotPossible):
        return "not possible here", str(error)
    if isinstance(error, TimeoutError):
        return "timed out", str(error) or last_said
    if isinstance(error, asyncio.CancelledError):
        return "interrupted", last_said
    return "failed", _shortened(f"{type(error).__name__}: {error}")


def _shortened(why: str) -> str:
    """Returns a reason, without its middle if it is too long."""
    if len(why) <= _LONGEST_WHY:
        return why
    return f"{why[:_LONGEST_BEGIN_OF_WHY]}\n...\n{why[_LONGEST_BEGIN_OF_WHY - _LONGEST_WHY :]}"


def _record(
    recorder: Recorder,
    group: Group,
    phase: Phase,
    began: float,
    status: Status,
    why: str,
    results: dict[str, Any],
) -> None:
    recorder.put_phase(
        {
            "group": group.name,
            "name": phase.name,
            "status": status,
            "why": why,
            "seconds": time.monotonic() - began,
            "limit_seconds": phase.limit_seconds,
            "results": results,
        }
    )
