"""Time that passes only when somebody says so."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

UNIX_TIME = 1_000_000.0


class VirtualClock:
    """The clocks that the runtime reads. Nothing that is done takes time, and pauses are over at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return UNIX_TIME + self.seconds

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Whatever of the runtime runs in the engine reads this clock, in this process."""
        readers = _readers_of_the_time()
        for module in readers:
            vars(module)["time"] = SimpleNamespace(
                monotonic=self.monotonic, time=self.time, perf_counter=self.monotonic, sleep=lambda _: None
            )
        try:
            yield
        finally:
            for module in readers:
                vars(module)["time"] = time


def _readers_of_the_time() -> list[ModuleType]:
    packages = "tenantzone_runtime.engine.", "tenantzone_runtime.housekeeping."
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith(packages) and getattr(module, "time", None) is time
    ]
