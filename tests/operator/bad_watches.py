"""What can go wrong with a watch, while it lasts and when it begins."""

import random

import pytest

from hack.harness.proxy import Faults, Refusal


def shuffled(lines: list[bytes]) -> list[bytes]:
    return random.Random(1).sample(lines, len(lines))


def repeated(lines: list[bytes]) -> list[bytes]:
    return lines * 2


class Late:
    """Holds each event back until the next one arrives, and sends the older one after it."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def __call__(self, lines: list[bytes]) -> list[bytes]:
        lines, self._held = [*lines[-1:], *self._held], lines[:-1]
        return lines


class Cut:
    """Leaves only half of the first event."""

    def __init__(self) -> None:
        self._is_over = False

    def __call__(self, lines: list[bytes]) -> list[bytes]:
        if self._is_over or not lines:
            return lines
        self._is_over = True
        return [lines[0][: len(lines[0]) // 2]]


bad_watches = pytest.mark.parametrize(
    "faults",
    [
        pytest.param(lambda: Faults(drop_every=1), id="dropped after each event"),
        pytest.param(lambda: Faults(drop_every=1, stream=Cut()), id="dropped within an event"),
        pytest.param(lambda: Faults(watches=Refusal(410), times=2, drop_every=2), id="410 for a watch"),
        pytest.param(lambda: Faults(stream=repeated), id="each event twice"),
        pytest.param(lambda: Faults(stream=shuffled), id="in another order"),
        pytest.param(lambda: Faults(stream=Late()), id="the older ones later"),
    ],
)
"""For a test with the argument `faults`, which makes them."""
