"""Computes the condition about a zone's latency targets in its engines, in pure functions.

Engines report the times of the last minute, which change with each request, and each change of a condition causes a
write. So the condition shows a time as a range of multiples of its target, and shows another range only once the time
has left the range by some percent. If many engines miss a target, the condition keeps naming the same engines, and does
not count the others.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from tenantzone_contract.reports.latency_words import LATENCY_WORDS
from tenantzone_contract.text import printable
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.reports import LatencyReport, TargetReport
from tenantzone_operator.kube.conditions import Condition, Reason, Type
from tenantzone_operator.kube.resources import Zone

_RANGES: Final = (1.15, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Bounds between the ranges, as multiples of a target. A time up to the first bound meets the target."""
_STAYS: Final = 0.1
"""Fraction of a bound by which a time must exceed or undercut the bound to change the range."""

_NAMED: Final = 3
_OTHERS: Final = "; and others"

_NOTHING: Final[Mapping[str, Any]] = {"status": "Unknown", "message": ""}
"""Placeholder for a missing condition."""

_NAMES: Final[Mapping[str, str]] = {"token_time": "between two tokens", "first_token": "to the first token"}
_REASONS: Final[Mapping[str, Reason]] = {
    "Warming": Reason.WARMING,
    "OwnLoad": Reason.OWN_LOAD,
    "OwnPrompts": Reason.OWN_PROMPTS,
    "ModelTooSlow": Reason.MODEL_TOO_SLOW,
    "Neighbours": Reason.NEIGHBOURS,
    "Blocks": Reason.BLOCKS,
    "Seats": Reason.SEATS,
}


@dataclass(frozen=True, slots=True)
class _Reported:
    """One engine's report on one target."""

    pod: str
    name: str
    report: TargetReport

    @property
    def ratio(self) -> float:
        """Ratio of the time to its target."""
        return (self.report.actual_seconds or 0.0) / self.report.target_seconds

    def figure(self, grade: int) -> str:
        """Returns the range of the missed target's time, in words."""
        low = _shown(_RANGES[grade - 1] * self.report.target_seconds)
        high = f" to {_shown(_RANGES[grade] * self.report.target_seconds)}" if grade < len(_RANGES) else " and more"
        return f"{self.pod}: {low}{high} {_NAMES[self.name]}, the target is {_shown(self.report.target_seconds)}: "

    def sentence(self, grade: int) -> str:
        """Returns the range with the reason and a remedy, in words."""
        words = LATENCY_WORDS.get(self.report.reason, f"missed: {printable(self.report.reason)}")
        return f"{self.figure(grade)}{words}"


def latency_target_met(
    zone: Zone, observations: Sequence[Observation], before: Sequence[Mapping[str, Any]]
) -> list[Condition]:
    """Returns the condition about the zone's latency targets; empty if it has no targets.

    Args:
        zone: the zone as the API server has it.
        observations: one for each ready engine of the pool.
        before: the zone's conditions until now.
    """
    targets = _targets(zone)
    if not targets:
        return []
    if not observations:
        return [_unknown(Reason.NO_ENGINES, "no engine is ready")]
    reported = [each for seen in observations for each in _reported(zone, seen, targets)]
    if not reported:
        return [_unknown(Reason.PENDING, "no engine has reported on the targets yet")]
    known = next((found for found in before if found["type"] == Type.LATENCY_TARGET_MET), _NOTHING)
    missed = [(grade, each) for each in reported if (grade := _grade(each, known))]
    if missed:
        return [_missed(missed, known)]
    words = " and ".join(f"{_shown(seconds)} {_NAMES[name]}" for name, seconds in targets.items())
    message = f"{words}: in no engine was the 99th percentile of the last minute above 1.15 times that"
    # Without traffic, keep the last result, because otherwise each occasional request would change the condition.
    is_told = (known["status"], known["message"]) == ("True", message)
    if not is_told and all(each.report.actual_seconds is None for each in reported):
        return [_unknown(Reason.NO_TRAFFIC, LATENCY_WORDS["NoTraffic"])]
    return [Condition(Type.LATENCY_TARGET_MET, "True", Reason.MET, message)]


def _unknown(reason: Reason, message: str) -> Condition:
    return Condition(Type.LATENCY_TARGET_MET, "Unknown", reason, message)


def _missed(missed: Sequence[tuple[int, _Reported]], known: Mapping[str, Any]) -> Condition:
    """Returns the condition about missed targets, each with the range of its time."""
    named = sorted(missed, key=lambda found: not _range_before(found[1], known))[:_NAMED]
    # Compare ranges, because the order of two similar times may change with each report.
    worst = max(named, key=itemgetter(0))[1]
    message = "; ".join(each.sentence(grade) for grade, each in named) + (_OTHERS if len(missed) > _NAMED else "")
    return Condition(Type.LATENCY_TARGET_MET, "False", _REASONS.get(worst.report.reason, Reason.MISSED), message)


def _targets(zone: Zone) -> dict[str, float]:
    """Returns the targets in the zone's spec, in seconds."""
    if zone.config is None:
        return {}
    latency = zone.config.latency
    named = {"token_time": latency.token_time_seconds, "first_token": latency.first_token_seconds}
    return {name: seconds for name, seconds in named.items() if seconds is not None}


def _reported(zone: Zone, seen: Observation, targets: Mapping[str, float]) -> Iterator[_Reported]:
    """Yields an engine's reports on the current targets, without reports on earlier targets."""
    found = seen.zones.get(zone.meta.name)
    latency: LatencyReport | None = None if found is None else found.latency
    for name, seconds in targets.items() if latency is not None else ():
        report: TargetReport | None = getattr(latency, name)
        if report is not None and report.target_seconds == seconds:
            yield _Reported(seen.pod, name, report)


def _grade(reported: _Reported, known: Mapping[str, Any]) -> int:
    """Returns the number of a time's range, 0 if it meets the target. Near a bound, the published range stays.

    A missed target counts as met as soon as the engine reports that it is met.
    """
    grade = bisect_right(_RANGES, reported.ratio)
    if known["status"] == "True":
        last = 0
    elif known["status"] == "False" and not known["message"].endswith(_OTHERS):
        last = _range_before(reported, known)
    else:
        last = _range_before(reported, known) or grade
    if grade == last + 1 and reported.ratio < (1.0 + _STAYS) * _RANGES[last]:
        return last
    if grade == last - 1 and grade and reported.ratio > (1.0 - _STAYS) * _RANGES[grade]:
        return last
    return grade


def _range_before(reported: _Reported, known: Mapping[str, Any]) -> int:
    """Returns the number of a time's last published range; 0 if the condition did not name it."""
    message = f"; {known['message']}"
    return next((grade for grade in range(1, len(_RANGES) + 1) if f"; {reported.figure(grade)}" in message), 0)


def _shown(seconds: float) -> str:
    return f"{1000 * seconds:.6g} ms"
