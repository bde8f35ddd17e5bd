"""Compares the zones' guarantees for a quiet tenant's times under a flood with the measurements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.figures import percentile
from bench.noisy_neighbour.figures import Phase, Seed, figure

FIRST_TOKEN_RATIO = 6.0
"""Bound of the p99 time to first token relative to solo, if there is no target."""
STEP_SHARE = 0.25
"""Fraction of a target by which a step may exceed the target before a first token counts as late."""
TOKEN_RATIO = 1.15
"""Bound of the time between two tokens, relative to the target."""
FLOOD_BESIDE = 0.90
FLOOD_ALONE = 0.99


def promises(
    arms: Mapping[str, Sequence[Seed]], steps_in_flight: int, targets: Mapping[str, float] | None = None
) -> Iterator[str]:
    """Yields a line per arm and promise, which says whether the promise is kept, and the margin.

    Percentiles are computed over the requests of all seeds; throughput is the mean over seeds of the ratio to the first
    arm.

    Args:
        arms: the measurements; the first arm is the reference.
        steps_in_flight: the number of steps that the engine has in flight, d in the formulas.
        targets: the target in seconds of each arm that has a target.
    """
    reference = next(iter(arms.values()))
    for name, seeds in arms.items():
        solo, flooded = _p99(seed.solo for seed in seeds), _p99(seed.flooded for seed in seeds)
        target = (targets or {}).get(name)
        if target is None:
            yield _at_most(name, f"p99 TTFT, {FIRST_TOKEN_RATIO:g} times solo's", flooded, FIRST_TOKEN_RATIO * solo)
        else:
            bound = first_token_bound(solo, target, steps_in_flight)
            yield _at_most(name, f"p99 TTFT, solo's + ({steps_in_flight} + {STEP_SHARE}) T", flooded, bound)
            between = percentile([each for seed in seeds for each in seed.flooded.token_seconds], 99)
            yield _at_most(name, f"p99 between two tokens, {TOKEN_RATIO} T", between, TOKEN_RATIO * target)
        if seeds is not reference:
            pairs = list(zip(seeds, reference, strict=True))
            ratio = figure([own.flood_tokens_beside / other.flood_tokens_beside for own, other in pairs]).mean
            yield _at_least(name, "flood's throughput with the quiet tenant", ratio, FLOOD_BESIDE)
            ratio = figure([own.flood_tokens_alone / other.flood_tokens_alone for own, other in pairs]).mean
            yield _at_least(name, "flood's throughput alone", ratio, FLOOD_ALONE)


def first_token_bound(solo: float, target: float, steps_in_flight: int) -> float:
    """Returns the promised bound of the time to first token, in seconds, for a target not below the solo step time."""
    return solo + (steps_in_flight + STEP_SHARE) * target


def _p99(phases: Iterable[Phase]) -> float:
    return percentile([each for phase in phases for each in phase.first_token_seconds], 99)


def _at_most(name: str, what: str, value: float, bound: float) -> str:
    decision = f"met, by {1000 * (bound - value):.3g} ms" if value <= bound else f"missed, by {value / bound:.2f} times"
    return f"{name}: {what}: {1000 * value:.3g} ms of {1000 * bound:.3g}: {decision}"


def _at_least(name: str, what: str, value: float, bound: float) -> str:
    return f"{name}: {what}: {value:.3f} of {bound}: {'met' if value >= bound else 'missed'}"
