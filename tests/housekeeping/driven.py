"""An engine as the tests of its port drive it."""

import time
from typing import Protocol

from tenantzone_runtime.housekeeping.engine import ServedEngine

CAPACITY = 100
DEADLINE_SECONDS = 60


class DrivenEngine(Protocol):
    """An engine of ``CAPACITY`` blocks and no model, whose requests and steps are the test's."""

    @property
    def served(self) -> ServedEngine: ...

    def send(self, tenant: str, blocks: int, *, steps: int = 1) -> None:
        """A request comes, to wait or to be refused.

        Args:
            tenant: whose.
            blocks: that its prompt fills; it goes on into the next one. Nobody sent it before.
            steps: that it takes once its prompt is computed, to fill less than a block in ten of them.
        """

    def step(self) -> None:
        """One step."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or runs."""


def run(engine: DrivenEngine) -> None:
    """Step until no request is left."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not engine.is_idle:
        engine.step()
        assert time.monotonic() < end, "requests are left"
