"""An engine as driven by the tests of its port."""

import time
from typing import Protocol

from tenantzone_runtime.housekeeping.engine import ServedEngine

CAPACITY = 100
DEADLINE_SECONDS = 60


class DrivenEngine(Protocol):
    """An engine of ``CAPACITY`` blocks and no model, whose requests and steps the test controls."""

    @property
    def served(self) -> ServedEngine: ...

    def send(self, tenant: str, blocks: int, *, steps: int = 1) -> None:
        """Sends a request, which waits or is refused.

        Args:
            tenant: the tenant.
            blocks: the blocks that its prompt fills; it continues into the next one. The prompt is new.
            steps: the steps after its prompt is computed; ten of them fill less than a block.
        """

    def step(self) -> None:
        """Makes one step."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or runs."""


def run(engine: DrivenEngine) -> None:
    """Steps until no request is left."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not engine.is_idle:
        engine.step()
        assert time.monotonic() < end, "requests are left"
