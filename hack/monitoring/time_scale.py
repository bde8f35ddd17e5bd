"""How long the rules' minutes are: as they are, or shorter for a test that can't wait for an hour."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Converts minutes to Prometheus' durations, and rates per minute accordingly.

    Args:
        scale: the length of a minute, in minutes. All windows, holds and intervals of the rules are multiplied by it;
            thresholds that are shares or ratios mean the same at any scale.
    """

    scale: float = 1.0

    def __call__(self, minutes: float) -> str:
        """Such as ``5m``, ``1h`` or ``7500ms``."""
        milliseconds = round(minutes * 60_000 * self.scale)
        for unit, length in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
            if milliseconds % length == 0 and milliseconds >= length:
                return f"{milliseconds // length}{unit}"
        return f"{milliseconds}ms"


REAL_TIME = TimeScale()
