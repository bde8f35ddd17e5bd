"""The guarantee of a token-time target, as a formula that a user can check.

All arguments and results are in seconds. ``docs/algebra.md`` explains the formula, and ``python -m
bench.latency_targets`` checks it on random loads.
"""

from typing import Final

TOLERANCE: Final = 1.15
"""A target counts as met up to this multiple of the target. Targets bound predicted times, which have errors."""
OWN_PROMPT_STEPS: Final = 16
"""A generating zone may always compute this fraction (1/16) of its waiting prompts in a step, whatever its target."""
BESIDE_OWN_PROMPTS: Final = 0.125
"""The fraction of a target that other zones may add to a step that contains a prompt of the zone."""


def own_prompt_steps(token_time: float, first_token: float | None, *, steps_in_flight: int) -> int:
    """Returns the number of steps over which a generating zone may spread its waiting prompts.

    Args:
        token_time: the zone's ``latency.tokenTime``.
        first_token: the zone's ``latency.firstToken``, which reduces the number; None if the zone has none.
        steps_in_flight: 2 with asynchronous scheduling, else 1.
    """
    if first_token is None:
        return OWN_PROMPT_STEPS
    return min(max(1, int(first_token / token_time) - steps_in_flight), OWN_PROMPT_STEPS)


def token_time_bound(
    target: float, *, solo_step: float, own_prefill: float, prompt_steps: int = OWN_PROMPT_STEPS
) -> float:
    """Returns the guaranteed 99th percentile of the time between two tokens of a request.

    Args:
        target: the zone's ``latency.tokenTime``.
        solo_step: duration of a step that computes only the zone's generating requests.
        own_prefill: time that the zone's simultaneous prompts would add to one step, at the 99th percentile. Cached
            parts of prompts do not count. With ``d`` steps in flight, these prompts count as simultaneous: a first one,
            those that arrive within the next ``d + 1`` steps and, if prompts are spread over steps, those that arrive
            before the first one is computed.
        prompt_steps: number of steps over which the zone's prompts may be spread.
    """
    own_step = solo_step + own_prefill / prompt_steps
    if own_step <= target:
        return TOLERANCE * target
    return TOLERANCE * (own_step + BESIDE_OWN_PROMPTS * target)
