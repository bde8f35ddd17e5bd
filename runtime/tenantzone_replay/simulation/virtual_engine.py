"""Simulates an engine core in virtual time. Its scheduler is real, and a hardware model predicts the time of a step."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tenantzone_replay.simulation.clock import VirtualClock
from tenantzone_replay.simulation.hardware import Hardware

_HOUSEKEEPING_SECONDS = 0.1
_IDLE_SECONDS = 1.0
"""Maximum advance of an idle engine's clock at once, in seconds. After a long idle time, ``_LONGER`` permits more."""
_LONGER = 0.01
"""Maximum advance as a fraction of the idle time so far, so that a year without requests takes few advances."""
_EMPTY_STEP_SECONDS = 1e-3
"""Minimum time in seconds until an engine that could schedule no request tries again."""


class Scheduling(Protocol):
    """The interface of a vLLM scheduler, with a method for each half of a step."""

    scheduler: Any

    def schedule(self) -> tuple[Any, Any]:
        """Schedule the next step, and return the scheduler's output and the model's result."""

    def update(self, output: Any, result: Any) -> list[Any]:
        """Finish the step with this output and result. Returns vLLM's ``EngineCoreOutput`` objects for clients."""


class Tenants(Protocol):
    """The interface of the clients, which send requests and receive tokens. Times are in virtual seconds."""

    def send_due(self, now: float) -> None:
        """Send all requests whose arrival time is not after ``now``."""

    def next_arrival(self) -> float | None:
        """Returns the time of the next arrival. None if no request will arrive, or only after another has ended."""

    def receive(self, output: Any, now: float) -> None:
        """Process vLLM's ``EngineCoreOutput`` for one request, which contains tokens or the end of the response."""


class VirtualEngine:
    """The loop of an engine core around a real scheduler, like vLLM's ``step_with_batch_queue``.

    The loop schedules up to ``steps_in_flight`` steps before the first of them ends. Then it waits for the end of the
    first step. Requests that arrive while it waits are handled when that step has ended.

    Args:
        driver: the scheduler.
        clock: the virtual clock, which this engine advances.
        hardware: predicts the duration of a step.
        tenants: the clients.
        steps_in_flight: 1, or 2 with async scheduling.
        look: called about ten times per virtual second, with the clock's time.
        loaded_tokens: returns the number of tokens that are loaded from a tier before the step that was just scheduled.
    """

    def __init__(
        self,
        driver: Scheduling,
        clock: VirtualClock,
        hardware: Hardware,
        tenants: Tenants,
        *,
        steps_in_flight: int,
        look: Callable[[float], None] = lambda _: None,
        loaded_tokens: Callable[[], int] = lambda: 0,
    ) -> None:
        self.steps = 0
        """Number of scheduled steps that were not empty."""
        self.busy_seconds = 0.0
        """Total duration of scheduled steps that were not empty, in seconds."""
        self._crowded_seconds = 0.0
        """Total duration of the steps during which requests waited, in seconds."""
        self._crowded_seats = 0.0
        """Integral of the number of running requests over the steps with waiting requests, in request seconds."""
        self._driver = driver
        self._clock = clock
        self._hardware = hardware
        self._tenants = tenants
        self._steps_in_flight = steps_in_flight
        self._in_flight: deque[tuple[float, Any, Any]] = deque()
        """Steps in flight. Each entry has the step's end in seconds, the scheduler's output, and the model's result."""
        self._busy_until = 0.0
        self._stands_since: float | None = None
        """Time since which no request could run. None if a request can run, or if there are no requests."""
        self._look = look
        self._loaded_tokens = loaded_tokens
        self._kept_house = clock.seconds
        self._keep_house: Callable[[], None] = getattr(driver.scheduler, "let_time_pass", lambda: None)

    @property
    def at_a_time(self) -> float:
        """Mean number of running requests while other requests waited, or 0.0 if no request ever waited."""
        return self._crowded_seats / self._crowded_seconds if self._crowded_seconds else 0.0

    @property
    def standing_seconds(self) -> float:
        """Time in seconds for which requests have existed but none of them could run."""
        return 0.0 if self._stands_since is None else self._clock.seconds - self._stands_since

    def run(self, is_over: Callable[[], bool]) -> None:
        """Run until ``is_over`` returns True, or until all requests have ended and no more arrive."""
        while not is_over():
            self._tenants.send_due(self._clock.seconds)
            if self._driver.scheduler.has_requests():
                self._schedule()
                if len(self._in_flight) < self._steps_in_flight and self._driver.scheduler.has_requests():
                    continue
            elif not self._in_flight:
                arrival = self._tenants.next_arrival()
                if arrival is None:
                    return
                self._stands_since = None
                # Advance the time in parts, so that zones apply their timeouts in between.
                idle = self._clock.seconds - self._busy_until
                self._pass_time(min(arrival, self._clock.seconds + max(_IDLE_SECONDS, _LONGER * idle)))
                continue
            self._await_step()

    def _schedule(self) -> None:
        output, result = self._driver.schedule()
        begins = max(self._clock.seconds, self._busy_until)
        if output.total_num_scheduled_tokens:
            self._stands_since = None
            requests = self._driver.scheduler.requests
            seconds = self._hardware.step_seconds(
                (tokens, requests[name].num_computed_tokens) for name, tokens in output.num_scheduled_tokens.items()
            )
            seconds += self._hardware.load_seconds(self._loaded_tokens())
            self.steps += 1
            self.busy_seconds += seconds
            if self._driver.scheduler.waiting:
                self._crowded_seconds += seconds
                self._crowded_seats += seconds * len(self._driver.scheduler.running)
        else:
            # An empty step takes no time while another step is still running. Otherwise, the clock must advance.
            seconds = 0.0 if self._in_flight and begins > self._clock.seconds else self._empty_step()
        self._busy_until = begins + seconds
        self._in_flight.append((self._busy_until, output, result))

    def _empty_step(self) -> float:
        """Returns how many seconds to wait after a step in which no request could be scheduled."""
        if self._stands_since is None:
            self._stands_since = self._clock.seconds
        seconds = max(_EMPTY_STEP_SECONDS, min(_IDLE_SECONDS, _LONGER * self.standing_seconds))
        arrival = self._tenants.next_arrival()
        return seconds if arrival is None else max(_EMPTY_STEP_SECONDS, min(seconds, arrival - self._clock.seconds))

    def _await_step(self) -> None:
        ends, output, result = self._in_flight.popleft()
        self._pass_time(ends)
        for item in self._driver.update(output, result):
            self._tenants.receive(item, self._clock.seconds)

    def _pass_time(self, until: float) -> None:
        self._clock.seconds = max(self._clock.seconds, until)
        if self._clock.seconds - self._kept_house >= _HOUSEKEEPING_SECONDS:
            self._kept_house = self._clock.seconds
            self._keep_house()
            self._look(self._clock.seconds)
