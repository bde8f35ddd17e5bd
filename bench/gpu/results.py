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
"""Maximum number of request errors recorded for each measurement."""

_T = TypeVar("_T")

Status = Literal["done", "failed", "timed out", "interrupted", "not possible here"]
"""Status of a phase. A running phase is recorded as interrupted, so that the file is right if the run is killed."""
DECIMALS: Final = 4
"""Number of decimals of recorded floats; for seconds, 0.1 ms."""


class Packages(TypedDict):
    """Versions of the packages that affect results; "" for packages that are not installed."""

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
    """The command that started an engine, and the seconds until the engine was healthy."""

    command: list[str]
    ready_seconds: float


class Percentiles(TypedDict):
    """Two percentiles of times, in seconds, for results without raw times."""

    p50: float
    p99: float


class Tenants(TypedDict):
    """Figures of several tenants' requests, with either raw times or percentiles."""

    requests: int
    failed: int
    first_token_seconds: NotRequired[list[float]]
    token_seconds: NotRequired[list[float]]
    first_token: NotRequired[Percentiles]
    token: NotRequired[Percentiles]
    errors: NotRequired[list[str]]
    """The first reasons of failed requests, at most `MOST_ERRORS`."""


class FloodRates(TypedDict):
    """Throughput of the flooding tenants in the window."""

    tokens_per_second: float
    """Rate of prompt tokens and generated tokens; a prompt counts when the first token of its answer arrives."""
    requests_per_second: float


class NoisyArm(TypedDict):
    """One arm of the noisy-neighbour phase with one seed."""

    arm: Literal["solo, stock", "solo, zones", "stock", "zones", "zones with targets"]
    seed: int
    window_seconds: float
    tenants: dict[str, Tenants]
    """Figures by kind of tenant: ``target`` and ``plain``."""
    flood: FloodRates | None
    target_seconds: float | None
    conditions: dict[str, str]
    """Reason that the engine reports for the state of the latency target, by tenant."""
    client_cpu_share: NotRequired[float]
    """Share of one core that the busiest load process used; near 1, the client was the bottleneck."""


class EqualRow(TypedDict):
    """Comparison of both engines' greedy answers in one case."""

    case: Literal["cold", "cached", "after preemption", "after tier load"]
    answers: int
    same_tokens: int
    same_top_logprobs: int
    largest_difference: float
    """Largest difference between the log probabilities that both answers give the same token at the same position."""
    stock_same_tokens: NotRequired[int]
    """Number of answers that stock gives alike alone and in a batch; set only if the engines' batches differ."""
    happened: NotRequired[bool]
    """Whether the case happened, that is, the engine found cached prompts, preempted a request, or loaded a tier."""
    note: NotRequired[str]
    """Figures that `happened` was derived from, and the number of distinct answers."""


class ReclaimRow(TypedDict):
    """Result of a quiet tenant that claims its whole reservation at once while a flood holds the pool."""

    engine: Literal["stock", "zones"]
    seed: int
    tokens: int
    slowest_seconds: float
    found_again: float
    """Fraction of the prompt tokens that the engine found cached afterwards."""


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
    """The outcome of a phase, and its results in the format that its group defines."""

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
    """Starts of engines by group and engine, for example ``default/stock``."""
    phases: list[PhaseResult]


def _warn(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class ResultsError(Exception):
    """A file is no result of this bench; the message names the file."""


class Recorder:
    """Collects the results of a run and replaces the file after each change.

    Args:
        run: the run so far.
        path: the file to write; None keeps the results in memory only.
        say: prints the reason if the file can't be written.
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
        """Record a phase, in place of an earlier record of the same phase."""
        phases = self.run["phases"]
        if phases and (phases[-1]["group"], phases[-1]["name"]) == (phase["group"], phase["name"]):
            phases.pop()
        phases.append(rounded(phase))
        self.save()

    def text(self) -> str:
        """Returns the content of the file."""
        return json.dumps(self.run, indent=1) + "\n"

    def save(self) -> bool:
        """Write the file, and return whether this succeeded; an error such as a full disk does not end the run."""
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
    """Returns a copy with every float rounded, also in nested lists and dictionaries."""
    if isinstance(value, float):
        return cast(_T, round(value, DECIMALS))
    if isinstance(value, dict):
        return cast(_T, {key: rounded(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return cast(_T, [rounded(each) for each in value])
    return value
