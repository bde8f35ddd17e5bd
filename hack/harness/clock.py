"""Time that passes only when a test or a bench says so."""

from hack.harness.scheduler import Driver
from tenantzone_replay.simulation.clock import UNIX_TIME, VirtualClock

__all__ = ["UNIX_TIME", "Clock"]


class Clock(VirtualClock):
    """A virtual clock that runs a scheduler, too."""

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
