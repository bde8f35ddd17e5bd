"""Time that only passes when the life says so."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

UNIX_TIME = 1_000_000.0


class Clock:
    """Both clocks that the runtime reads, the monotonic one and the wall's."""

    def __init__(self) -> None:
        self.seconds = 1.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return UNIX_TIME + self.seconds

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Each module of the runtime's engine that reads the time reads this clock."""
        instead = SimpleNamespace(monotonic=self.monotonic, time=self.time)
        modules = [
            module
            for name, module in sys.modules.items()
            if name.startswith("tenantzone_runtime.engine.") and getattr(module, "time", None) is time
        ]
        for module in modules:
            module.time = instead
        try:
            yield
        finally:
            for module in modules:
                module.time = time
