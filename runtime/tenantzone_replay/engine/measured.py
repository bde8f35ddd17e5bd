"""Predicts the time of a step on a measured engine, from the file that ``fit`` writes and ``compare`` reads.

The time of a step is a fixed cost plus a cost for each request, for each computed token, for each pair of a token and
an earlier token to which it attends, and for each token whose keys and values are read. No cost is negative.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenantzone_replay.traces.load import TraceError

if TYPE_CHECKING:
    import numpy as np

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Work:
    """The contents of one step that determine its time."""

    requests: int
    tokens: int
    attended: float
    """Number of pairs of a computed token and an earlier token to which it attends."""
    read: int
    """Number of tokens whose keys and values are read, summed over all requests."""


def work_of(scheduled: Iterable[tuple[int, int]]) -> Work:
    """Returns the work of a step, summed over its requests.

    Args:
        scheduled: for each request in the step, the number of tokens to compute, and the length of the request
            including these tokens.
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
    """A measured engine. The costs are in seconds."""

    name: str
    step: float
    """Fixed cost of a step. The next four fields are costs per unit of the four fields of :class:`Work`."""
    request: float
    token: float
    pair: float
    read: float
    first_token: float
    """Part of the time to first token that passes outside the engine's steps."""
    block_count: int
    """Number of the engine's blocks, or 0 if unknown."""
    block_tokens: int
    cache_bytes_per_token: int = 0
    """Size of a token's keys and values in all layers, in bytes, or 0 if unknown."""
    gpu_count: int = 1

    @property
    def title(self) -> str:
        return f"{self.name}, as it was measured"

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prefill speed in tokens per second, for prompts so short that the cost of attention is negligible."""
        return 1 / max(self.token, 1e-9)

    @property
    def outside_seconds(self) -> float:
        return self.first_token

    def blocks(self, block_tokens: int) -> int:
        """Returns how many blocks of ``block_tokens`` tokens fit into the KV cache, or 0 if its size is unknown."""
        return self.block_count * self.block_tokens // block_tokens

    def step_seconds(self, scheduled: Iterable[tuple[int, int]]) -> float:
        """Returns how long a step takes, in seconds. ``scheduled`` is described in :func:`work_of`."""
        return self.seconds(work_of(scheduled))

    def load_seconds(self, tokens: int) -> float:
        """Returns the time to load ``tokens`` tokens from host memory, in seconds.

        ``fit`` does not measure this, so the result assumes the bandwidth of an H100 (see ``hardware``).
        """
        return tokens * self.cache_bytes_per_token / 51.2e9

    def seconds(self, work: Work) -> float:
        """Returns how long a step with this work takes, in seconds."""
        return (
            self.step
            + self.request * work.requests
            + self.token * work.tokens
            + self.pair * work.attended
            + self.read * work.read
        )

    def write(self, path: Path) -> None:
        """Write the measured engine to a JSON file for ``read_measured``."""
        path.write_text(json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n")


def read_measured(path: Path) -> Measured:
    """Read a measured engine from a file that ``Measured.write`` wrote.

    Raises:
        TraceError: the file can't be read, or ``Measured.write`` did not write it.
    """
    try:
        figures = json.loads(path.read_text())
        if figures.pop("format") != FORMAT:
            raise TraceError(f"{path}: the file has a different format; measure the engine again")
        found = Measured(*(type_of(figures[each.name]) for each, type_of in zip(fields(Measured), _TYPES, strict=True)))
        amounts = [getattr(found, each.name) for each in fields(Measured)[1:]]
        if not all(0 <= each < 1e15 for each in amounts) or found.block_tokens < 1 or found.gpu_count < 1:
            raise TraceError(
                f"{path}: seconds, blocks and GPUs must be finite and not negative; measure the engine again"
            )
        if not found.step + found.request + found.token:
            raise TraceError(f"{path}: the time of a step must be above 0; measure the engine again")
        return found
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except TraceError:
        raise
    except (AttributeError, KeyError, TypeError, OverflowError, RecursionError, ValueError) as error:
        raise TraceError(f"{path} was not written by the command fit: {error!r}") from None


_TYPES: Final = (str, float, float, float, float, float, float, int, int, int, int)


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured duration, and the work that the engine did in this time."""

    work: Work
    seconds: float
    with_first_token: bool
    """Whether the duration includes ``Measured.first_token``, the time outside the engine's steps."""


def fitted(samples: Sequence[Sample], name: str, block_count: int, block_tokens: int) -> Measured:
    """Returns the non-negative costs that minimize the sum of the squared relative errors of the samples.

    Raises:
        TraceError: there are too few samples.
    """
    if len(samples) < 4:
        raise TraceError(f"{len(samples)} samples are too few to fit the time of a step; at least 4 are needed")
    # Imported here, because --help does not need NumPy.
    import numpy as np

    rows = np.array([_row(each) for each in samples])
    seconds = np.array([each.seconds for each in samples])
    costs = _least_squares(rows / seconds[:, None])
    step, request, token, pair, read, first_token = map(float, costs)
    return Measured(name, step, request, token, pair, read, first_token, block_count, block_tokens)


def errors(measured: Measured, samples: Iterable[Sample]) -> list[float]:
    """Returns the relative error of the predicted duration of each sample."""
    return [
        abs(measured.seconds(each.work) + measured.first_token * each.with_first_token - each.seconds) / each.seconds
        for each in samples
    ]


def described(measured: Measured, bytes_per_token: int, gpus: int) -> Measured:
    """Returns a copy of the measured engine with this number of cache bytes per token and this number of GPUs."""
    return replace(measured, cache_bytes_per_token=bytes_per_token, gpu_count=gpus)


def _row(sample: Sample) -> tuple[float, ...]:
    work = sample.work
    return 1.0, work.requests, work.tokens, work.attended, work.read, float(sample.with_first_token)


def _least_squares(rows: "np.ndarray") -> "np.ndarray":
    """Solves ``rows @ factors = 1`` by least squares with non-negative factors, and returns the factors.

    Fits each subset of the columns without a sign constraint, and returns the best fit without a negative factor. This
    is fast, because six columns have only 63 non-empty subsets.
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
