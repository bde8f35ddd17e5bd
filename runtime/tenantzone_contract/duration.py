"""Parses durations as Kubernetes users write them, for example ``60s``, ``5m``, ``1h30m``."""

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
"""Maximum number of characters. More digits would exceed the range or the precision of Go's durations."""


def parse_duration(text: str) -> float:
    """Returns a duration in seconds. Fractions of a nanosecond are dropped, as in Go.

    Raises:
        ValueError: the text is not a duration, or the duration is above 0 and less than a nanosecond.
    """
    parts = _PART.findall(text) if len(text) <= _LONGEST else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'expected a duration such as "60s" or "1h30m", got {text!r:.80}')
    # Use whole nanoseconds, because a sum of floats would make 100000us less than 100 ms.
    amounts = [Decimal(number.rstrip(".")) * _NANOSECONDS[unit] for number, unit in parts]
    nanoseconds = sum(map(int, amounts))
    if not nanoseconds and any(amounts):
        raise ValueError(f"expected 0s, or a duration of at least 1ns, got {text!r}")
    return nanoseconds / 10**9
