"""The results of the arms, and their output as ratios to stock with targets."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bench.figures import paired_ratios


@dataclass(slots=True)
class Record:
    """The measurements of one arm.

    Args:
        zones: the number of zones of the arm.
        times: the CPU time of each step, in seconds.
        running: the number of running requests after each step.
        waiting: the number of waiting requests after each step.
        ended: the number of requests that have ended.
        outside: the CPU time outside of steps, in seconds.
    """

    zones: int
    times: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    ended: int = 0
    outside: float = 0.0


def describe(stock: Record, arms: Sequence[Record], targets: dict[int, float], seconds: float) -> Iterator[str]:
    """Yields the results as readable lines.

    Args:
        stock: the record of vLLM's own scheduler.
        arms: the records of the schedulers with zones.
        targets: the maximum ratio to stock, by the arm's number of zones.
        seconds: the total time of the measurement.
    """
    yield (
        f"{'':<12}{'running':>8}{'waiting':>8}{'ended':>7}{'step, median':>14}{'p99':>10}"
        f"   {'ratio to stock: p25':>20}{'median':>8}{'p75':>8}{'mean':>8}   target"
    )
    yield f"{'stock':<12}{_situation(stock)}"
    for arm in arms:
        ratios = paired_ratios(arm.times, stock.times)
        low, middle, high = statistics.quantiles(ratios, n=4)
        mean = sum(arm.times) / sum(stock.times)
        target = targets.get(arm.zones)
        decision = "" if target is None else f"{target:.2f} {'met' if middle <= target else 'missed'}"
        line = f"{_name(arm):<12}{_situation(arm)}   {low:>20.3f}{middle:>8.3f}{high:>8.3f}{mean:>8.3f}   {decision}"
        yield line.rstrip()
    with_zones = [arm for arm in arms if arm.zones]
    for one, other in pairwise(with_zones):
        middle = statistics.median(paired_ratios(other.times, one.times))
        yield f"{_name(other)} against {_name(one)}, step by step: {middle:.3f}"
    for arm in with_zones:
        yield f"{_name(arm)}: {arm.outside / seconds * 1000:.1f} ms of processor time a second outside the steps"


def rows(stock: Record, arms: Sequence[Record]) -> list[dict[str, float | int | str]]:
    """Returns a row for stock and for each arm with zones; times are CPU seconds of a scheduler step.

    Args:
        stock: the record of vLLM's own scheduler.
        arms: the records of the schedulers with zones.
    """
    return [
        {
            "engine": engine,
            "zones": record.zones,
            "running": statistics.median(record.running),
            "waiting": statistics.median(record.waiting),
            "step, median, s": statistics.median(record.times),
            "step, p99, s": statistics.quantiles(record.times, n=100)[98],
            "to stock, median": statistics.median(paired_ratios(record.times, stock.times)),
        }
        for engine, record in (("stock", stock), *(("zones", arm) for arm in arms))
    ]


def _name(arm: Record) -> str:
    return f"{arm.zones:,} zone{'s' if arm.zones != 1 else ''}"


def _situation(arm: Record) -> str:
    running, waiting = statistics.median(arm.running), statistics.median(arm.waiting)
    p99 = statistics.quantiles(arm.times, n=100)[98]
    step = statistics.median(arm.times)
    return f"{running:>8.0f}{waiting:>8.0f}{arm.ended:>7}{step * 1000:>11.2f} ms{p99 * 1000:>7.2f} ms"
