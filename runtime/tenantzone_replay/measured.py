"""How long a step takes on an engine that was measured: what ``fit`` found, as a file that ``compare`` takes.

A step takes a time of its own, and more for each request in it, for each token that is computed, for each pair of
tokens of which one attends to the other, and for each token whose keys and values are read. None of it is negative.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenantzone_replay.load import TraceError

if TYPE_CHECKING:
    import numpy as np

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Work:
    """What is in one step, as far as its time depends on it."""

    requests: int
    tokens: int
    attended: float
    """Pairs of a token and one before it."""
    read: int
    """Tokens with keys and values, of all requests."""


def work_of(scheduled: Iterable[tuple[int, int]]) -> Work:
    """What a step comes to.

    Args:
        scheduled: of each request in it, the tokens that are computed, and how many it has with them.
    """
    requests = tokens = read = 0
    attended = 0.0
    for new, context in scheduled:
        requests += 1
        tokens += new
        attended += new * (context - new / 2)
        read += context
    return Work(requests, tokens, attended, read)


@dataclass(frozen=True, slots=True)
class Measured:
    """An engine, as it was measured; seconds, if nothing else is said."""

    name: str
    step: float
    """Of each step, whatever is in it; the next four are for what is in it."""
    request: float
    token: float
    pair: float
    read: float
    first_token: float
    """Until a request is in the engine, and its first token back from there."""
    block_count: int
    """Blocks of the engine; 0: it did not say."""
    block_tokens: int
    cache_bytes_per_token: int = 0
    """Keys and values, of all layers; 0: nobody said."""
    gpu_count: int = 1

    @property
    def title(self) -> str:
        return f"{self.name}, as it was measured"

    @property
    def prompt_tokens_per_second(self) -> float:
        """Of prompts so short that attention costs nothing to speak of."""
        return 1 / max(self.token, 1e-9)

    @property
    def outside_seconds(self) -> float:
        return self.first_token

    def blocks(self, block_tokens: int) -> int:
        """Of this size, that are as many tokens as the engine's own."""
        return self.block_count * self.block_tokens // block_tokens

    def step_seconds(self, scheduled: Iterable[tuple[int, int]]) -> float:
        """How long a step takes; see :func:`work_of`."""
        return self.seconds(work_of(scheduled))

    def load_seconds(self, tokens: int) -> float:
        """What nobody has measured: as on an H100 (see ``hardware``)."""
        return tokens * self.cache_bytes_per_token / 51.2e9

    def seconds(self, work: Work) -> float:
        """How long a step of this work takes."""
        return (
            self.step
            + self.request * work.requests
            + self.token * work.tokens
            + self.pair * work.attended
            + self.read * work.read
        )

    def write(self, path: Path) -> None:
        """Write it down for other commands."""
        path.write_text(json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n")


def read_measured(path: Path) -> Measured:
    """What was written down.

    Raises:
        TraceError: it can't be read.
    """
    try:
        told = json.loads(path.read_text())
        if told.pop("format") != FORMAT:
            raise TraceError(f"{path}: its format is another one; measure the engine again")
        found = Measured(*(type_of(told[each.name]) for each, type_of in zip(fields(Measured), _TYPES, strict=True)))
        amounts = [getattr(found, each.name) for each in fields(Measured)[1:]]
        if not all(0 <= each < 1e15 for each in amounts) or found.block_tokens < 1 or found.gpu_count < 1:
            raise TraceError(f"{path}: expected seconds, blocks and GPUs, none of them negative or without end")
        if not found.step + found.request + found.token:
            raise TraceError(f"{path}: expected that a step takes some time")
        return found
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except TraceError:
        raise
    except (AttributeError, KeyError, TypeError, OverflowError, RecursionError, ValueError) as error:
        raise TraceError(f"{path} was not written by fit: {error!r}") from None


_TYPES: Final = (str, float, float, float, float, float, float, int, int, int, int)


@dataclass(frozen=True, slots=True)
class Sample:
    """How long something took."""

    work: Work
    seconds: float
    with_first_token: bool
    """Whether a request's way to the engine and back is in it."""


def fitted(samples: Sequence[Sample], name: str, block_count: int, block_tokens: int) -> Measured:
    """The costs that are nearest to all samples, none of them negative; what is off counts by the part that it is off.

    Raises:
        TraceError: there are too few samples.
    """
    if len(samples) < 4:
        raise TraceError(f"{len(samples)} samples are too few to fit a step's time")
    # Imported late: help needs none of it.
    import numpy as np

    rows = np.array([_row(each) for each in samples])
    seconds = np.array([each.seconds for each in samples])
    costs = _least_squares(rows / seconds[:, None])
    step, request, token, pair, read, first_token = map(float, costs)
    return Measured(name, step, request, token, pair, read, first_token, block_count, block_tokens)


def errors(measured: Measured, samples: Iterable[Sample]) -> list[float]:
    """By which part each sample is off."""
    return [
        abs(measured.seconds(each.work) + measured.first_token * each.with_first_token - each.seconds) / each.seconds
        for each in samples
    ]


def described(measured: Measured, bytes_per_token: int, gpus: int) -> Measured:
    """The same engine, of which is known how much memory a token takes in its cache, and on how many GPUs it runs."""
    return replace(measured, cache_bytes_per_token=bytes_per_token, gpu_count=gpus)


def _row(sample: Sample) -> tuple[float, ...]:
    work = sample.work
    return 1.0, work.requests, work.tokens, work.attended, work.read, float(sample.with_first_token)


def _least_squares(rows: "np.ndarray") -> "np.ndarray":
    """What times the rows comes nearest to 1, with no negative number: of all choices of what is not 0, the best one.

    With six numbers there are so few choices that each is tried.
    """
    import numpy as np

    width = rows.shape[1]
    scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
    best, least = np.zeros(width), float(len(rows))
    for size in range(1, width + 1):
        for chosen in map(list, combinations(range(width), size)):
            found, *_ = np.linalg.lstsq(rows[:, chosen] / scale[chosen], np.ones(len(rows)), rcond=None)
            off = float(((rows[:, chosen] / scale[chosen] @ found - 1) ** 2).sum())
            if (found >= 0).all() and off < least * (1 - 1e-9):
                best, least = np.zeros(width), off
                best[chosen] = found / scale[chosen]
    return best
