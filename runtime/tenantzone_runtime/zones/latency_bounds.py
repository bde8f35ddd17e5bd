"""The promises of latency targets, as formulas that a user can check.

All arguments and results are in seconds. ``docs/algebra.md`` explains the formulas, and ``python -m
bench.latency_targets`` checks them on random loads.
"""

from math import ceil
from typing import Final

TOLERANCE: Final = 1.15
"""A target counts as met up to this multiple of it: it bounds predictions, and predictions are wrong at times."""
OWN_PROMPT_STEPS: Final = 8
"""A zone that generates may compute one part in this number of its waiting prompts in a step, whatever its target."""
BESIDE_OWN_PROMPTS: Final = 0.125
"""The fraction of a target that other zones may add to a step that contains a prompt of the zone."""


def token_time_bound(target: float, *, solo_step: float, own_prefill: float) -> float:
    """Returns the promised 99th percentile of the time between two tokens of a request.

    Args:
        target: the zone's ``latency.tokenTime``.
        solo_step: the time of a step in which only the zone's running requests generate.
        own_prefill: what the zone's prompts that wait at the same time would add to one step. With ``d`` steps in
            flight these are the prompts that arrive within ``d + 1`` steps.
    """
    own_step = solo_step + own_prefill / OWN_PROMPT_STEPS
    if own_step <= target:
        return TOLERANCE * target
    return TOLERANCE * (own_step + BESIDE_OWN_PROMPTS * target)


def first_token_bound(target: float, *, steps_in_flight: int, solo_step: float, own_prefill: float) -> float:
    """Returns the promised 99th percentile of the time to the first token of a zone with a token-time target.

    A prompt waits for the steps in flight, and is then computed in one step or more: beside other requests of its zone
    that generate, a step takes no more of the prompt than the target or `OWN_PROMPT_STEPS` allow.

    Args:
        target: the zone's ``latency.tokenTime``.
        steps_in_flight: 2 with asynchronous scheduling, else 1.
        solo_step: the time of a step in which only the zone's running requests generate.
        own_prefill: what the zone's prompts that wait at the same time would add to one step.
    """
    step = token_time_bound(target, solo_step=solo_step, own_prefill=own_prefill)
    in_each_step = max(target - solo_step, own_prefill / OWN_PROMPT_STEPS)
    own_steps = max(1, ceil(own_prefill / in_each_step)) if in_each_step > 0 else 1
    return (steps_in_flight + own_steps) * step
