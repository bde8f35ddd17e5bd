"""The JSON file of a run: its types, and a recorder that writes the file after each phase."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NotRequired, TypedDict, TypeVar, cast

FORMAT: Final = 1
"""The version of the file's format."""

MOST_ERRORS: Final = 3
"""Reasons of failed requests that are recorded for each measurement."""

_T = TypeVar("_T")

Status = Literal["done", "failed", "timed out", "interrupted", "not possible here"]
"""A phase that is still running counts as interrupted: the file then says so if the run ends there."""
DECIMALS: Final = 4
"""Seconds are rounded to 0.1 ms."""


class Packages(TypedDict):
    """Versions of the packages that matter; "" for one that is not installed."""

    vllm: str
    torch: str
    triton: str
    transformers: str


class Environment(TypedDict):
    """The machine and the software that a run measured."""

    card: str | None
    driver: str | None
    gpus: int
    cpus: int
    python: str
    packages: Packages
    tenantzone: str
    commit: str
    notes: list[str]


class Model(TypedDict):
    """The model that the engines served."""

    name: str
    weights: Literal["dummy", "real"]


class EngineStart(TypedDict):
    """How an engine was started, and the seconds until it was healthy."""

    command: list[str]
    ready_seconds: float


class Percentiles(TypedDict):
    """Two percentiles in seconds, for results without raw times."""

    p50: float
    p99: float


class Tenants(TypedDict):
    """The requests of several tenants; raw times, or else percentiles only."""

    requests: int
    failed: int
    first_token_seconds: NotRequired[list[float]]
    token_seconds: NotRequired[list[float]]
    first_token: NotRequired[Percentiles]
    token: NotRequired[Percentiles]
    errors: NotRequired[list[str]]
    """The first reasons of failed requests, at most `MOST_ERRORS`."""


class FloodRates(TypedDict):
    """The work that the flooding tenants got in the window."""

    tokens_per_second: float
    """Prompt tokens and generated tokens; a prompt counts when its first token comes."""
    requests_per_second: float


class NoisyArm(TypedDict):
    """One arm of the noisy-neighbour phase with one seed."""

    arm: Literal["solo, stock", "solo, zones", "stock", "zones", "zones with targets"]
    seed: int
    window_seconds: float
    tenants: dict[str, Tenants]
    """The figures by kind of tenant: ``target`` and ``plain``."""
    flood: FloodRates | None
    target_seconds: float | None
    conditions: dict[str, str]
    """The reason that the engine reports for its latency target, by tenant."""
    client_cpu_share: NotRequired[float]
    """The busiest load process's share of one core: near 1, the client was the limit."""


class EqualRow(TypedDict):
    """Greedy answers of both engines compared, in one case."""

    case: Literal["cold", "cached", "after preemption", "after tier load"]
    answers: int
    same_tokens: int
    same_top_logprobs: int
    largest_difference: float
    """The largest difference of log probabilities that both answers give for the same token at the same place."""
    stock_same_tokens: NotRequired[int]
    """Answers that stock gives equally to itself, alone and in a batch; only where the engines' batches differ."""
    happened: NotRequired[bool]
    """Whether the case happened: the engine found the prompts cached, preempted a request, or loaded from the tier."""
    note: NotRequired[str]
    """The figures behind `happened`, and how many answers were distinct."""


class ReclaimRow(TypedDict):
    """A quiet tenant's reservation claimed at once while a flood holds the pool."""

    engine: Literal["stock", "zones"]
    seed: int
    tokens: int
    slowest_seconds: float
    found_again: float
    """Share of the prompt tokens that the engine found cached afterwards."""


class ThroughputRow(TypedDict):
    """Generated tokens per second at a fixed number of concurrent requests."""

    engine: Literal["stock", "zones"]
    tenants: int
    concurrency: int
    seed: int
    tokens_per_second: float
    window_seconds: float
    failed: int
    errors: NotRequired[list[str]]
    """The first reasons of failed requests, at most `MOST_ERRORS`."""
    client_cpu_share: NotRequired[float]


class PhaseResult(TypedDict):
    """One phase: how it ended, and its results as its group defines them."""

    group: str
    name: str
    status: Status
    why: str
    seconds: float
    limit_seconds: float
    results: dict[str, Any]


class Run(TypedDict):
    """The whole file."""

    format: int
    started: str
    command: str
    environment: Environment
    model: Model
    engines: dict[str, EngineStart]
    """The starts by group and engine, as in ``default/stock``."""
    phases: list[PhaseResult]


def _warn(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class ResultsError(Exception):
    """A file that is no result of this bench; the message names it."""


class Recorder:
    """Collects the results of a run and replaces the file after each change.

    Args:
        run: the run so far.
        path: the file to write; None keeps the results in memory only.
        say: prints why the file could not be written.
    """

    def __init__(self, run: Run, path: Path | None, say: Callable[[str], None] = _warn) -> None:
        self.run = run
        self._path = path
        self._say = say
        self.save()

    def add_engine(self, group: str, engine: str, start: EngineStart) -> None:
        """Record an engine that became healthy."""
        self.run["engines"][f"{group}/{engine}"] = rounded(start)
        self.save()

    def put_phase(self, phase: PhaseResult) -> None:
        """Record a phase; replaces an earlier record of it."""
        phases = self.run["phases"]
        if phases and (phases[-1]["group"], phases[-1]["name"]) == (phase["group"], phase["name"]):
            phases.pop()
        phases.append(rounded(phase))
        self.save()

    def text(self) -> str:
        """The content of the file."""
        return json.dumps(self.run, indent=1) + "\n"

    def save(self) -> bool:
        """Write the file; returns whether it has all results. A failure, as of a full disk, does not end the run."""
        if self._path is None:
            return False
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_text(self.text())
            new.replace(self._path)
        except OSError as error:
            self._say(f"the results could not be written, and the next change tries again: {error}")
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            return False
        return True


def read(path: Path) -> Run:
    """Read the file of a run.

    Raises:
        OSError: the file cannot be read.
        ResultsError: the file is no result of this bench, or has another format.
    """
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ResultsError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ResultsError(f"{path}: expected a result of bench.gpu with format {FORMAT}")
    return cast(Run, content)


def rounded(value: _T) -> _T:
    """A copy with every float rounded, in nested lists and dictionaries too."""
    if isinstance(value, float):
        return cast(_T, round(value, DECIMALS))
    if isinstance(value, dict):
        return cast(_T, {key: rounded(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return cast(_T, [rounded(each) for each in value])
    return value
