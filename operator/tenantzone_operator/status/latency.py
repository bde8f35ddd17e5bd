"""Computes the condition about a zone's latency targets in its engines, without any I/O.

Engines report the latencies of the last minute, which change with each request, and each change of a condition causes a
write. So the condition shows a latency as a range of multiples of the target, and shows another range only once the
latency has left the range by some percent. If many engines miss a target, the condition keeps naming the same engines,
and does not count the others. The last shown ranges are in memory only, so a new leader may change the range of a
latency near a bound once.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from tenantzone_contract.reports.latency_words import LATENCY_WORDS
from tenantzone_contract.reports.zone_report import LatencyReport, TargetReport
from tenantzone_contract.text import printable
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Condition, Reason, Type
from tenantzone_operator.kube.resources import Zone

_RANGES: Final = (1.15, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Bounds between the ranges, as multiples of a target. A latency up to the first bound meets the target."""
_STAYS: Final = 0.1
"""Fraction of a bound by which a latency must exceed or undercut the bound to change the shown range."""

_NAMED: Final = 3
_OTHERS: Final = "; and others"

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


_Key = tuple[str, str, float]
"""Key of a measured latency: the pod, the target's name, and the target in seconds."""


@dataclass(slots=True)
class ShownRanges:
    """The ranges in a zone's last condition, kept so that small changes of a latency do not change the condition."""

    grades: dict[_Key, int] | None = None
    """Index of the range of each latency that misses its target; None if unknown, as after a restart."""
    named: frozenset[_Key] = field(default_factory=frozenset)
    """Keys of the latencies that the condition names."""


@dataclass(frozen=True, slots=True)
class _Reported:
    """One engine's report on one target."""

    pod: str
    name: str
    report: TargetReport

    @property
    def key(self) -> _Key:
        return self.pod, self.name, self.report.target_seconds

    @property
    def ratio(self) -> float:
        """Ratio of the measured latency to its target."""
        return (self.report.actual_seconds or 0.0) / self.report.target_seconds

    def sentence(self, grade: int) -> str:
        """Returns a sentence with the range of the latency that misses its target, the reason and a remedy."""
        low = _shown(_RANGES[grade - 1] * self.report.target_seconds)
        high = f" to {_shown(_RANGES[grade] * self.report.target_seconds)}" if grade < len(_RANGES) else " and more"
        target = _shown(self.report.target_seconds)
        words = LATENCY_WORDS.get(self.report.reason, f"missed: {printable(self.report.reason)}")
        return f"{self.pod}: {low}{high} {_NAMES[self.name]}, the target is {target}: {words}"


def latency_target_met(
    zone: Zone, observations: Sequence[Observation], before: Sequence[Mapping[str, Any]], shown: ShownRanges
) -> list[Condition]:
    """Returns a list with the condition about the zone's latency targets; an empty list if the zone has no targets.

    Args:
        zone: the zone as stored in the API server.
        observations: one observation for each ready engine of the pool.
        before: the conditions in the zone's previous status.
        shown: the ranges in the zone's last condition; this function updates them for the returned condition.
    """
    grades, named = shown.grades, shown.named
    shown.grades, shown.named = None, frozenset()
    targets = _targets(zone)
    if not targets:
        return []
    if not observations:
        return [_unknown(Reason.NO_ENGINES, "no engine is ready")]
    reported = [each for seen in observations for each in _reported(zone, seen, targets)]
    if not reported:
        return [_unknown(Reason.PENDING, "no engine has reported on the targets yet")]
    known = next((found for found in before if found["type"] == Type.LATENCY_TARGET_MET), {})
    was_met = known.get("status") == "True"
    if grades is None and was_met:
        grades = {}
    graded = [(_grade(each, grades), each) for each in reported]
    if missed := [(grade, each) for grade, each in graded if grade]:
        missed = sorted(missed, key=lambda found: found[1].key not in named)
        shown.grades = {each.key: grade for grade, each in missed}
        shown.named = frozenset(each.key for _, each in missed[:_NAMED])
        return [_missed(missed)]
    words = " and ".join(f"{_shown(seconds)} {_NAMES[name]}" for name, seconds in targets.items()) + ": "
    message = f"{words}in no engine was the 99th percentile of the last minute above 1.15 times the target"
    # Without traffic, keep the last result, because otherwise each occasional request would change the condition.
    # If the message begins differently, the targets or the operator's version have changed.
    is_published = was_met and known["message"].startswith(words)
    if not is_published and all(each.report.actual_seconds is None for each in reported):
        return [_unknown(Reason.NO_TRAFFIC, LATENCY_WORDS["NoTraffic"])]
    shown.grades = {}
    return [Condition(Type.LATENCY_TARGET_MET, "True", Reason.MET, message)]


def _unknown(reason: Reason, message: str) -> Condition:
    return Condition(Type.LATENCY_TARGET_MET, "Unknown", reason, message)


def _missed(missed: Sequence[tuple[int, _Reported]]) -> Condition:
    """Returns the condition about missed targets; its message names the first few, each with its latency's range."""
    named = missed[:_NAMED]
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
    """Iterates over an engine's reports on the current targets, and skips reports on previous targets."""
    found = seen.zones.get(zone.meta.name)
    latency: LatencyReport | None = None if found is None else found.latency
    for name, seconds in targets.items() if latency is not None else ():
        report: TargetReport | None = getattr(latency, name)
        if report is not None and report.target_seconds == seconds:
            yield _Reported(seen.pod, name, report)


def _grade(reported: _Reported, grades: Mapping[_Key, int] | None) -> int:
    """Returns the index of a latency's range, 0 if it meets the target. Near a bound, the last shown range stays.

    A missed target counts as met as soon as the engine reports that it is met.

    Args:
        reported: the latency and its target.
        grades: the range indexes in the last condition, without latencies that met their target; None if unknown.
    """
    grade = bisect_right(_RANGES, reported.ratio)
    last = grade if grades is None else grades.get(reported.key, 0)
    if grade == last + 1 and reported.ratio < (1.0 + _STAYS) * _RANGES[last]:
        return last
    if grade == last - 1 and grade and reported.ratio > (1.0 - _STAYS) * _RANGES[grade]:
        return last
    return grade


def _shown(seconds: float) -> str:
    return f"{1000 * seconds:.6g} ms"
