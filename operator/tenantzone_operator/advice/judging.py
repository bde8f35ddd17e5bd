"""Judges whether a change has helped, by comparing figures from before and after the change."""

from dataclasses import dataclass
from typing import Final

from tenantzone_operator.advice.rules import Proposal
from tenantzone_operator.advice.window import MET, Figures, ZoneFigures

_WORSE: Final = 1.1
"""Growth factor above which the latency of a missed target counts as worse; smaller growth may be chance."""
_BETTER: Final = 0.95
"""Factor to which the latency of a missed target must fall to count as better."""
_WORSE_HITS: Final = 0.01
"""Largest acceptable drop of the hit rate of all zones together, as a fraction of all prompt tokens."""
_WORSE_HITS_OF_ONE: Final = 0.05
"""Largest acceptable drop of one zone's hit rate, as a fraction of the zone's prompt tokens."""
_BETTER_HITS: Final = 0.005
"""Smallest rise of the hit rate that counts as better, as a fraction of prompt tokens."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome of a trial."""

    helped: bool | None
    """Whether the change helped; None if there were too few measurements to decide."""
    message: str


def judge(tried: Proposal, before: Figures, after: Figures) -> Judgement:
    """Returns whether a change has helped and made nothing worse.

    Args:
        tried: the change.
        before: the figures of the window before the change.
        after: the figures since the change took effect.
    """
    if worse := _worse_target(before, after) or _worse_hits(before, after):
        return Judgement(False, worse)
    return _gain_of_target(tried, before, after) if tried.reason == "TargetMissed" else _gain(tried, before, after)


def _worse_target(before: Figures, after: Figures) -> str:
    """Returns a text about a zone whose latency exceeds its target more than before; empty without such a zone."""
    for name in sorted(after.zones):
        was, now = _of(before, name).mean_ratio, after.zones[name].mean_ratio
        if was is not None and now is not None and now > MET and now > _WORSE * was:
            return f"the latency of {name} was {_times(was)} a target, and is {_times(now)} since the change"
    return ""


def _worse_hits(before: Figures, after: Figures) -> str:
    was, now = before.hit_rate, after.hit_rate
    if was is not None and now is not None and now < was - _WORSE_HITS:
        return f"all zones found {was:.1%} of their prompts in the cache, and find {now:.1%} since the change"
    for name in sorted(after.zones):
        was, now = _of(before, name).hit_rate, after.zones[name].hit_rate
        if was is not None and now is not None and now < was - _WORSE_HITS_OF_ONE:
            return f"{name} found {was:.1%} of its prompts in the cache, and finds {now:.1%} since the change"
    return ""


def _gain_of_target(tried: Proposal, before: Figures, after: Figures) -> Judgement:
    was, now = _of(before, tried.for_zone).mean_ratio, _of(after, tried.for_zone).mean_ratio
    if was is None or now is None:
        return Judgement(None, f"{tried.for_zone} had no requests to which a latency target applies")
    return Judgement(
        now <= MET or now <= _BETTER * was,
        f"the latency of {tried.for_zone} was {_times(was)} its target, and is {_times(now)} since the change",
    )


def _gain(tried: Proposal, before: Figures, after: Figures) -> Judgement:
    name = tried.for_zone or "all zones together"
    was = (_of(before, tried.for_zone) if tried.for_zone else before).hit_rate
    now = (_of(after, tried.for_zone) if tried.for_zone else after).hit_rate
    if was is None or now is None:
        return Judgement(None, f"{name} had no request")
    return Judgement(
        now >= was + _BETTER_HITS, f"{name} found {was:.1%} of the prompts in the cache, and {now:.1%} since the change"
    )


def _of(figures: Figures, name: str) -> ZoneFigures:
    return figures.zones.get(name) or ZoneFigures()


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"
