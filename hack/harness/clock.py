"""Time that passes only when a test or a bench says so."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

from hack.harness.scheduler import Driver

UNIX_TIME = 1_000_000.0


class Clock:
    """The clocks that the runtime reads. Nothing that is done takes time, and pauses are over at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return UNIX_TIME + self.seconds

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Whatever of the runtime runs in the engine reads this clock."""
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

    def run(self, driver: Driver, max_steps: int, *, step_seconds: float = 0.02) -> None:
        """Step until no request is left, and let time pass meanwhile."""
        for _ in range(max_steps):
            if not driver.scheduler.has_unfinished_requests():
                return
            driver.step()
            self.seconds += step_seconds
            driver.scheduler.let_time_pass()
            driver.check()
        raise AssertionError(f"requests are left after {max_steps} steps")


def _readers_of_the_time() -> list[ModuleType]:
    packages = "tenantzone_runtime.engine.", "tenantzone_runtime.housekeeping."
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith(packages) and getattr(module, "time", None) is time
    ]
