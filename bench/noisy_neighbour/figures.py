"""The results of the phases: figures with confidence intervals over seeds, as rows of one table."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import t as student

from bench.figures import markdown_table, percentile

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Phase:
    """Times of the quiet tenant's requests in one phase, alone or next to the flood."""

    first_token_seconds: tuple[float, ...]
    token_seconds: tuple[float, ...]
    """Times between two tokens, over all answers."""
    refused: int = 0
    """Number of refusals; refused requests are sent again."""


@dataclass(frozen=True, slots=True)
class Seed:
    """The measurements of one arm with one seed."""

    solo: Phase
    flooded: Phase
    flood_tokens_beside: float
    """Tokens per second of the flood while the quiet tenant sends requests, too."""
    flood_tokens_alone: float
    flood_refused: int
    """Number of refused flood requests while the quiet tenant sends requests, too."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over seeds."""

    mean: float
    margin: float
    """Half-width of the mean's confidence interval, by Student's t; 0 for a single seed."""

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.margin:.2g}" if self.margin else f"{self.mean:.3g}"


def figure(values: Sequence[float]) -> Figure:
    """Returns the mean of one value per seed, with its confidence interval.

    Raises:
        statistics.StatisticsError: there are no values.
    """
    if len(values) < 2:
        return Figure(statistics.fmean(values), 0.0)
    spread = statistics.stdev(values) / len(values) ** 0.5
    return Figure(statistics.fmean(values), float(student.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * spread)


def _ms(percent: float, of: Callable[[Seed], tuple[float, ...]]) -> Callable[[Seed, Seed], float]:
    return lambda seed, _: 1000 * percentile(of(seed), percent)


def _times_solo(seed: Seed, _: Seed) -> float:
    return percentile(seed.flooded.first_token_seconds, 99) / percentile(seed.solo.first_token_seconds, 99)


COLUMNS: Mapping[str, Callable[[Seed, Seed], float]] = {
    "solo TTFT p99, ms": _ms(99, lambda seed: seed.solo.first_token_seconds),
    "flood TTFT p50, ms": _ms(50, lambda seed: seed.flooded.first_token_seconds),
    "flood TTFT p99, ms": _ms(99, lambda seed: seed.flooded.first_token_seconds),
    "p99 to solo": _times_solo,
    "solo between tokens p99, ms": _ms(99, lambda seed: seed.solo.token_seconds),
    "flood between tokens p50, ms": _ms(50, lambda seed: seed.flooded.token_seconds),
    "flood between tokens p99, ms": _ms(99, lambda seed: seed.flooded.token_seconds),
    "flood tokens/s, to the first arm": lambda seed, first: seed.flood_tokens_beside / first.flood_tokens_beside,
    "flood alone, to the first arm": lambda seed, first: seed.flood_tokens_alone / first.flood_tokens_alone,
    "refused": lambda seed, _: float(seed.flooded.refused),
    "flood refused": lambda seed, _: float(seed.flood_refused),
}
"""Functions by column that compute a figure from one seed of an arm and the same seed of the first arm."""


def table(arms: Mapping[str, Sequence[Seed]]) -> str:
    """Returns a Markdown table with a row per arm and confidence intervals; the first arm is the reference."""
    reference = next(iter(arms.values()))
    rows = []
    for name, seeds in arms.items():
        pairs = list(zip(seeds, reference, strict=True))
        rows.append([name, *(str(figure([value(*pair) for pair in pairs])) for value in COLUMNS.values())])
    return markdown_table(["arm", *COLUMNS], rows)
