"""Durations as Kubernetes users write them: ``60s``, ``5m``, ``1h30m``."""

import re
from decimal import Decimal

_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign, ...
    "μs": 10**3,  # ... and the Greek letter
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LONGEST = 64
"""Characters: more digits than Go's nanoseconds have say nothing."""


def parse_duration(text: str) -> float:
    """Read a duration, in seconds; what is less than a nanosecond is left out, as Go does.

    Raises:
        ValueError: it is not a duration, or it is above 0 and less than a nanosecond.
    """
    parts = _PART.findall(text) if len(text) <= _LONGEST else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'expected a duration such as "60s" or "1h30m", got {text!r:.80}')
    # In whole nanoseconds: sums of floats would make less than 100 ms of 100000us.
    amounts = [Decimal(number.rstrip(".")) * _NANOSECONDS[unit] for number, unit in parts]
    nanoseconds = sum(map(int, amounts))
    if not nanoseconds and any(amounts):
        raise ValueError(f"expected 0s, or a duration of at least 1ns, got {text!r}")
    return nanoseconds / 10**9
