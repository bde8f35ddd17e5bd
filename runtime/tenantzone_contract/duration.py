"""Durations as Kubernetes users write them: ``60s``, ``5m``, ``1h30m``."""

import re

_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Read a duration, in seconds.

    Raises:
        ValueError: it is not a duration.
    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'expected a duration such as "60s" or "1h30m", got {text!r}')
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
