"""The results of the runs, as tables of rounds, ratios and targets."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import paired_ratios, percentile

THROUGHPUT_TARGET = 0.99
FIRST_TOKEN_TARGET = 1.02


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one run against one engine."""

    requests_per_second: float
    tokens_per_second: float
    """Number of answer tokens per second."""
    cpu_milliseconds_per_request: float
    """CPU time of all processes of the engine per request."""
    first_token_milliseconds: tuple[float, ...]
    """Time to first token of each request."""


@dataclass(frozen=True, slots=True)
class Round:
    """The runs of one engine in one round."""

    saturated: Run
    """Run with the maximum number of concurrent requests; the first requests are sent all at once."""
    steady: Run
    """Run with requests at a rate below the engines' capacity."""


METRICS: Mapping[str, Callable[[Round], float]] = {
    "requests/s": lambda each: each.saturated.requests_per_second,
    "tokens/s": lambda each: each.saturated.tokens_per_second,
    "CPU ms/request": lambda each: each.saturated.cpu_milliseconds_per_request,
    "TTFT p50, ms": lambda each: percentile(each.saturated.first_token_milliseconds, 50),
    "TTFT p99, ms": lambda each: percentile(each.saturated.first_token_milliseconds, 99),
    "steady p50, ms": lambda each: percentile(each.steady.first_token_milliseconds, 50),
    "steady p99, ms": lambda each: percentile(each.steady.first_token_milliseconds, 99),
}

LOADS: Mapping[str, Callable[[Round], Run]] = {
    "saturated": lambda each: each.saturated,
    "steady": lambda each: each.steady,
}

POOLED_PERCENTILES = (50, 90, 99)


def ratios(rounds: Sequence[Round], reference: Sequence[Round], metric: str) -> list[float]:
    """Returns the ratio of an engine's metric to the reference's, for each round."""
    value = METRICS[metric]
    return paired_ratios([value(each) for each in rounds], [value(each) for each in reference])


def pooled_ratio(rounds: Sequence[Round], reference: Sequence[Round], load: str, percent: float) -> float:
    """Returns the ratio of a percentile of the time to first token, over the requests of all rounds."""
    mine, theirs = (
        percentile([each for one in some for each in LOADS[load](one).first_token_milliseconds], percent)
        for some in (rounds, reference)
    )
    return mine / theirs


def tables(engines: Mapping[str, Sequence[Round]]) -> str:
    """Returns all tables as text; the first engine is the reference."""
    lines = _rounds(engines)
    (_, reference), *others = engines.items()
    for name, rounds in others:
        lines += ["", *_ratios(name, rounds, reference)]
    return "\n".join(lines)


def _rounds(engines: Mapping[str, Sequence[Round]]) -> list[str]:
    lines = [f"{'round':<7}{'engine':<16}" + "".join(f"{metric:>16}" for metric in METRICS)]
    for number, rounds in enumerate(zip(*engines.values(), strict=True), start=1):
        for name, each in zip(engines, rounds, strict=True):
            cells = "".join(f"{value(each):>16.2f}" for value in METRICS.values())
            lines.append(f"{number:<7}{name:<16}{cells}")
    return lines


def _ratios(name: str, rounds: Sequence[Round], reference: Sequence[Round]) -> list[str]:
    lines = [f"{name + ', ratio to the first engine':<44}{'min':>9}{'median':>9}{'max':>9}"]
    for metric in METRICS:
        values = ratios(rounds, reference, metric)
        lines.append(f"{metric:<44}{min(values):>9.3f}{statistics.median(values):>9.3f}{max(values):>9.3f}")
    lines.append(
        f"{'TTFT of the requests of all rounds':<44}" + "".join(f"{f'p{each}':>9}" for each in POOLED_PERCENTILES)
    )
    for load in LOADS:
        cells = (pooled_ratio(rounds, reference, load, percent) for percent in POOLED_PERCENTILES)
        lines.append(f"{load:<44}" + "".join(f"{cell:>9.3f}" for cell in cells))
    return lines + _verdicts(rounds, reference)


def _verdicts(rounds: Sequence[Round], reference: Sequence[Round]) -> list[str]:
    throughput = statistics.median(ratios(rounds, reference, "requests/s"))
    lines = [
        f"throughput, median of the rounds: {throughput:.3f}; the target is at least {THROUGHPUT_TARGET}: "
        f"{_word(throughput >= THROUGHPUT_TARGET)}"
    ]
    for load in LOADS:
        first_token = pooled_ratio(rounds, reference, load, 99)
        lines.append(
            f"p99 TTFT, {load}, requests of all rounds: {first_token:.3f}; the target is at most "
            f"{FIRST_TOKEN_TARGET}: {_word(first_token <= FIRST_TOKEN_TARGET)}"
        )
    return lines


def _word(holds: bool) -> str:
    return "holds" if holds else "missed"
