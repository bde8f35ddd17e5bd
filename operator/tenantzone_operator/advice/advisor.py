"""Recommends changes to a pool's settings and, in mode Auto, tries, keeps and undoes them, one change at a time.

The advisor compares a time window after a change with the window before the change. It stores its decisions in the
pool's status, from which `tenantzone_operator.advice.overlay` applies them. The figures of the earlier window are not
stored, so after a restart the operator reverts a change that was on trial, and may try the change again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_operator.advice.adjustment import (
    MAX_ADJUSTMENTS,
    Adjustment,
    Field,
    read_adjustments,
    timestamp,
)
from tenantzone_operator.advice.judging import Judgement, judge
from tenantzone_operator.advice.overlay import Overlaid, holding
from tenantzone_operator.advice.rules import Proposal, proposals
from tenantzone_operator.advice.values import (
    ANYTHING,
    amount,
    pool_with_value,
    value_of,
    value_of_pool,
    with_value,
    within,
)
from tenantzone_operator.advice.window import Figures, Window
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool, Zone

REST_WINDOWS: Final = 6
"""Number of windows for which the advisor does not try a field again after it has undone a trial of the field.

The number doubles with each consecutive undone trial. After a kept trial, a further change in the same direction need
not wait, but a change in the opposite direction must wait for this number of windows.
"""
MOST_DOUBLINGS: Final = 6
"""Maximum number of times that ``REST_WINDOWS`` is doubled."""
_PATIENCE_WINDOWS: Final = 3
"""Number of windows after which a trial ends even if there were too few measurements to judge it."""
_MOST_UNDONE: Final = 1_000_000
"""Upper bound for the count of undone trials, needed because another client may write any count into the status."""
_TOLD: Final = ("recommendation", "adjustments")
_LOOKS: Final = 20
"""Number of times per window that the advisor samples the engines' reports."""
_LEAST_LOOKS: Final = 3
_LONGEST_PAUSE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Moment:
    """The inputs of one call of `Advisor.look`."""

    pool: Pool
    """The pool as stored in the API server, without adjustments."""
    zones: Sequence[Zone]
    """The pool's zones as stored in the API server, without adjustments."""
    in_force: Overlaid
    """The pool and its zones with the current adjustments applied, as the engines should enforce them."""
    observations: Sequence[Observation]
    """One observation for each ready engine."""
    newest: RuntimeConfig | None
    """The newest published snapshot; None if the pool has no snapshot."""
    is_acknowledged: bool
    """Whether all observed engines have acknowledged the newest snapshot."""
    seconds: float
    """Current monotonic time in seconds."""
    unix_time: float


@dataclass(slots=True)
class _Trial:
    proposal: Proposal
    before: Figures
    began: float
    """Monotonic time in seconds at which the advisor decided on the trial."""
    is_in_force: bool = False


class Advisor:
    """The advisor of one pool."""

    def __init__(self) -> None:
        self._window = Window()
        self._began: float | None = None
        """Monotonic time in seconds at which the window began; None if the next sample begins a new window."""
        self._looked = float("-inf")
        self._trial: _Trial | None = None

    def look(self, now: Moment, before: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields ``recommendation`` and ``adjustments`` of the pool's status.

        Args:
            now: the current inputs.
            before: the pool's status as this operator last computed it, without later changes by other clients.
        """
        if now.pool.advice.mode == "Never" or now.pool.config is None:
            # Begin anew when advice is switched on, because figures from the meantime belong to no window.
            self._trial, self._began, self._window = None, None, Window()
            # If the pool's spec is invalid, the engines keep their config, so the status keeps its advice.
            return {} if now.pool.config is not None else {name: before[name] for name in _TOLD if name in before}
        credible = (_credible(each, now.unix_time) for each in read_adjustments(before))
        adjustments = holding(now.pool, now.zones, credible)
        recommendation = _still_true(now, before.get("recommendation"))
        adjustments = self._after_a_restart(adjustments)
        if self._trial is not None:
            adjustments = self._try(now, adjustments)
        elif self._is_over(now):
            adjustments, recommendation = self._advise(now, adjustments, recommendation)
        rows = [each.row() for each in sorted(adjustments, key=lambda each: each.since)]
        found: dict[str, Any] = {"recommendation": recommendation} if recommendation is not None else {}
        return found | ({"adjustments": rows} if rows else {})

    def _after_a_restart(self, adjustments: list[Adjustment]) -> list[Adjustment]:
        """Revert trials whose figures were lost in a restart. Discard this advisor's trial if it has no row now."""
        on_trial = {each.key for each in adjustments if each.state == "Trial"}
        if self._trial is not None and self._trial.proposal.key not in on_trial:
            self._trial = self._began = None
        known = self._trial.proposal.key if self._trial is not None else None
        return [each for found in adjustments if (each := _settled(found, known)) is not None]

    def _is_over(self, now: Moment) -> bool:
        """Sample the engines' reports if the last sample is old enough; return whether the window has ended."""
        if self._began is None:
            self._began, self._looked = now.seconds, float("-inf")
            self._window.begin()
        window_seconds = now.pool.advice.window_seconds
        if now.seconds - self._looked >= pause_seconds(window_seconds):
            self._looked = now.seconds
            self._window.look(now.observations, {zone.meta.name for zone in now.zones})
        return now.seconds - self._began >= window_seconds and self._window.figures.looks >= _LEAST_LOOKS

    def _advise(
        self, now: Moment, adjustments: list[Adjustment], recommendation: Mapping[str, Any] | None
    ) -> tuple[list[Adjustment], Mapping[str, Any] | None]:
        """After a window without a change, start a trial of the best change, or recommend the change."""
        figures, advice = self._window.figures, now.pool.advice
        self._began = None
        if advice.mode == "Auto":
            for each in _found(now, figures, within_bounds=True):
                if not _rests(now, adjustments, each) and (more := _begun(now, adjustments, each)) is not None:
                    self._trial = _Trial(each, figures, now.seconds)
                    return more, None
        wanted = (
            each
            for each in _found(now, figures, within_bounds=False)
            if advice.mode == "Recommend" or not within(advice.bounds, each.field, each.value)
        )
        return adjustments, _recommended(now, next(wanted, None), recommendation)

    def _try(self, now: Moment, adjustments: list[Adjustment]) -> list[Adjustment]:
        """Continue the current trial, and end the trial if there are enough measurements."""
        trial, window_seconds = self._trial, now.pool.advice.window_seconds
        assert trial is not None, "there is a trial"
        if not trial.is_in_force:
            if _is_in_force(now, trial.proposal):
                trial.is_in_force, self._began = True, None
            elif now.seconds - trial.began < window_seconds:
                # Not all engines enforce the change yet, so these figures do not belong to the window after the change.
                self._is_over(now)
                return adjustments
            else:
                return self._ended(
                    now, adjustments, Judgement(False, "not all engines applied the change within a window")
                )
        if not self._is_over(now) or self._began is None:
            return adjustments
        judgement = judge(trial.proposal, trial.before, self._window.figures)
        if judgement.helped is None and now.seconds - self._began < _PATIENCE_WINDOWS * window_seconds:
            return adjustments
        return self._ended(now, adjustments, judgement)

    def _ended(self, now: Moment, adjustments: list[Adjustment], judgement: Judgement) -> list[Adjustment]:
        trial = self._trial
        assert trial is not None, "there is a trial"
        self._trial = self._began = None
        return [
            _judged(each, judgement, now.unix_time) if each.key == trial.proposal.key else each for each in adjustments
        ]


def pause_seconds(window_seconds: float) -> float:
    """Returns the seconds between two samples of the engines' reports."""
    return min(max(1.0, window_seconds / _LOOKS), _LONGEST_PAUSE_SECONDS)


def _credible(found: Adjustment, unix_time: float) -> Adjustment:
    """Returns the adjustment with its time and count limited to plausible values.

    Another client may write any values into the status, and a fast clock may write a time in the future.
    """
    since, undone = min(max(found.since, 0.0), _whole(unix_time)), min(max(found.undone, 0), _MOST_UNDONE)
    return replace(found, since=since, undone=undone)


def _settled(found: Adjustment, known: tuple[str, Field] | None) -> Adjustment | None:
    """Returns an adjustment with its trial reverted; an adjustment without a trial, or ``known``, stays unchanged.

    Returns None if the adjustment contains nothing but the reverted trial.
    """
    if found.state != "Trial" or found.key == known:
        return found
    if found.undone:
        # Keep the row, because it contains the count of undone trials.
        return replace(found, state="Undone", message="was undone before a trial that a restart interrupted")
    if not found.previous:
        return None
    return replace(
        found, state="Kept", value=found.previous, previous="", message="kept before a trial that a restart interrupted"
    )


def _judged(each: Adjustment, judgement: Judgement, unix_time: float) -> Adjustment:
    ended = replace(each, since=_whole(unix_time), message=judgement.message)
    if judgement.helped:
        return replace(ended, state="Kept", undone=0)
    return replace(ended, state="Undone", undone=each.undone + 1)


def _found(now: Moment, figures: Figures, *, within_bounds: bool) -> Iterable[Proposal]:
    """Returns the changes that would probably help and that are valid in a spec."""
    pool, bounds = now.in_force.pool, now.pool.advice.bounds if within_bounds else ANYTHING
    assert pool is not None, "the pool exists"
    zones = {zone.meta.name: zone for zone in now.in_force.zones}
    for each in proposals(pool, zones, figures, bounds):
        makes_sense = (
            with_value(zones[each.zone], each.field, each.value) is not None
            if each.zone
            else pool_with_value(pool, each.value) is not None
        )
        if makes_sense and (not within_bounds or within(bounds, each.field, each.value)):
            yield each


def _rests(now: Moment, adjustments: Iterable[Adjustment], wanted: Proposal) -> bool:
    """Returns whether the field was changed too recently for another change."""
    known = next((each for each in adjustments if each.key == wanted.key), None)
    if known is None:
        return False
    rest = REST_WINDOWS * now.pool.advice.window_seconds
    if known.state == "Undone":
        rest *= 2.0 ** min(max(known.undone, 1) - 1, MOST_DOUBLINGS)
    elif _goes_on(known, wanted):
        return False
    return now.unix_time < known.since + rest


def _goes_on(known: Adjustment, wanted: Proposal) -> bool:
    """Returns whether the wanted change has the same direction as the last change of the field."""
    from_, to = amount(known.field, known.previous or known.spec), amount(known.field, known.value)
    further = amount(known.field, wanted.value)
    if known.field in (Field.LIMIT, Field.TTL):
        # An unset limit or ttl is infinite.
        from_ = float("inf") if from_ is None else from_
    return None not in (from_, to, further) and (to - from_) * (further - to) > 0  # type: ignore[operator]


def _begun(now: Moment, adjustments: list[Adjustment], wanted: Proposal) -> list[Adjustment] | None:
    """Returns the adjustments with a new trial added; None if there are too many adjustments."""
    known = next((each for each in adjustments if each.key == wanted.key), None)
    others = [each for each in adjustments if each is not known]
    if len(others) >= MAX_ADJUSTMENTS:
        oldest = min((each for each in others if not each.in_force), key=lambda each: each.since, default=None)
        if oldest is None:
            return None
        others.remove(oldest)
    zone = next((zone for zone in now.zones if zone.meta.name == wanted.zone), None)
    assert now.pool.config is not None, "the pool is valid"
    config = zone.config if zone is not None else None
    spec = value_of(config, wanted.field) if config is not None else value_of_pool(now.pool.config)
    began = Adjustment(
        zone=wanted.zone,
        field=wanted.field,
        spec=spec,
        value=wanted.value,
        previous=known.in_force if known is not None else "",
        state="Trial",
        reason=wanted.reason,
        since=_whole(now.unix_time),
        undone=known.undone if known is not None else 0,
        message=wanted.message,
    )
    return [*others, began]


def _is_in_force(now: Moment, wanted: Proposal) -> bool:
    """Returns whether all engines enforce a snapshot that contains the change."""
    if now.newest is None or not now.is_acknowledged or not now.observations:
        return False
    if not wanted.zone:
        return value_of_pool(now.newest.pool) == wanted.value
    entry = next((entry for entry in now.newest.zones if entry.name == wanted.zone), None)
    return entry is not None and value_of(entry, wanted.field) == wanted.value


def _recommended(now: Moment, wanted: Proposal | None, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if wanted is None:
        return None
    what = {
        "zone": wanted.zone,
        "field": wanted.field.value,
        "from": wanted.current,
        "value": wanted.value,
        "reason": wanted.reason,
        "message": f"{wanted.field.value}{f' of {wanted.zone}' if wanted.zone else ''}: {wanted.current or 'unset'} -> "
        f"{wanted.value}, because {wanted.message}",
    }
    given = {name: value for name, value in what.items() if value}
    is_same = before is not None and {name: before.get(name) for name in given} == given
    return before if is_same else given | {"since": timestamp(now.unix_time)}


def _still_true(now: Moment, recommendation: Any) -> Mapping[str, Any] | None:
    """Returns the recommendation if the field still has the value that the recommendation would change; else None."""
    if not isinstance(recommendation, dict):
        return None
    pool, zones = now.in_force.pool, now.in_force.zones
    assert pool is not None, "the pool exists"
    try:
        field, name = Field(recommendation.get("field", "")), recommendation.get("zone", "")
        if field is Field.WATERMARK:
            current = value_of_pool(pool.config) if pool.config is not None else None
        else:
            config = next((zone.config for zone in zones if zone.meta.name == name), None)
            current = value_of(config, field) if config is not None else None
    except ValueError:
        return None
    return recommendation if current == recommendation.get("from", "") else None


def _whole(unix_time: float) -> float:
    return float(int(unix_time))
