"""Counts how often an alert would have fired, for several thresholds and ``for`` durations."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.alerts.history import BEGINNING
from bench.alerts.loads import FLOOD_SECONDS, FLOOD_STARTS, WARM_SECONDS, Load
from bench.alerts.queries import Prometheus, Series
from bench.alerts.signals import SIGNALS, Signal, shipped

_STEP_SECONDS = 30.0
_FLOOD_WINDOW_SECONDS = FLOOD_SECONDS + 600.0
"""Length of the flood plus ten minutes, during which the rules' windows still include the flood."""


@dataclass(slots=True)
class Day:
    """A simulated day, with the series of its signals."""

    load: Load
    seconds: float
    hit_rate: float
    found: dict[str, Series] = field(default_factory=dict)
    """Series by expression."""

    def look(self, prometheus: Prometheus, note: Callable[[str], None]) -> None:
        """Query every signal and every alert, starting when the pool is warm."""
        begin, end = BEGINNING + WARM_SECONDS, BEGINNING + self.seconds
        asked = {signal.what: signal.expression for signal in SIGNALS} | {
            alert.name: alert.expression for alert in shipped()
        }
        for what, expression in asked.items():
            note(what)
            self.found[expression] = prometheus.ask(expression, begin, end, _STEP_SECONDS)

    def firings(self, expression: str, is_on: Callable[[float], bool], hold_minutes: float) -> list[float]:
        """Returns the times at which an alert would have begun to fire, in simulated seconds, over all zones."""
        return [
            at - BEGINNING
            for series in self.found[expression].values()
            for at in _firings([at for at, value in series if is_on(value)], hold_minutes * 60)
        ]


def tables(days: Sequence[Day]) -> Iterator[str]:
    """Yields lines with the number of times that alerts would have fired, as shipped and with other thresholds."""
    for day in days:
        load = day.load
        yield (
            f"{load.name:<10} {(day.seconds - WARM_SECONDS) / 3600:.1f} h, {load.plan.tenants} zones, hit rate "
            f"{day.hit_rate:.0%}: {load.text}"
        )
    yield ""
    yield "Times that it would have fired, over all zones; of the day with the flood, before it and in it"
    yield ""
    yield _row("as shipped", "", [*(day.load.name for day in days[:-1]), "before", "flood"])
    for alert in shipped():
        yield _row(alert.name, "", _counts(days, alert.expression, lambda _: True, _minutes(alert.hold)))
    for signal in SIGNALS:
        yield ""
        yield f"{signal.alert}: {signal.what}"
        for threshold, hold in signal.candidates:
            counts = _counts(days, signal.expression, _comparison(signal, threshold), hold)
            yield _row(f"{'<' if signal.falls else '>'} {threshold:g}", f"{hold:g} min", counts)


def _comparison(signal: Signal, threshold: float) -> Callable[[float], bool]:
    return (lambda value: value < threshold) if signal.falls else (lambda value: value > threshold)


def _counts(days: Sequence[Day], expression: str, is_on: Callable[[float], bool], hold: float) -> list[int]:
    counts = [len(day.firings(expression, is_on, hold)) for day in days[:-1]]
    flooded = days[-1].firings(expression, is_on, hold)
    ends = FLOOD_STARTS + _FLOOD_WINDOW_SECONDS
    return [*counts, sum(at < FLOOD_STARTS for at in flooded), sum(FLOOD_STARTS <= at < ends for at in flooded)]


def _row(name: str, hold: str, cells: Sequence[object]) -> str:
    return f"  {name:<30}{hold:>8}" + "".join(f"{cell:>11}" for cell in cells)


def _firings(times: Sequence[float], hold: float) -> Iterator[float]:
    """Yields the time at which each interval without a gap has lasted for ``hold`` seconds."""
    began = before = 0.0
    fired = False
    for at in times:
        if at - before > _STEP_SECONDS * 1.5:
            began, fired = at, False
        before = at
        if not fired and at - began >= hold:
            fired = True
            yield at


def _minutes(duration: str) -> float:
    found = re.fullmatch(r"(\d+)([mh])", duration)
    return int(found[1]) * {"m": 1, "h": 60}[found[2]] if found else 0.0
