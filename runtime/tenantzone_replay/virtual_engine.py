"""An engine core in virtual time, around a real scheduler: steps take what a model of the hardware says."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tenantzone_replay.clock import VirtualClock
from tenantzone_replay.hardware import Hardware

_HOUSEKEEPING_SECONDS = 0.1
_IDLE_SECONDS = 1.0
"""That an engine with nothing to do sleeps at most, ..."""
_LONGER = 0.01
"""... or so much of the time for which it has had nothing to do: a trace may have a night in it, or a year."""
_EMPTY_STEP_SECONDS = 1e-3
"""Before an engine in which nothing can be scheduled looks again, at the least."""


class Scheduling(Protocol):
    """A scheduler of vLLM's, and the two halves of a step of it."""

    scheduler: Any

    def schedule(self) -> tuple[Any, Any]:
        """What is computed in the next step, and what the model makes of it."""

    def update(self, output: Any, result: Any) -> list[Any]:
        """The end of that step; returns what is sent to clients, as vLLM's ``EngineCoreOutput``."""


class Tenants(Protocol):
    """Who sends requests, and is told of their tokens; each time is the clock's."""

    def send_due(self, now: float) -> None:
        """Send all that has come up to now."""

    def next_arrival(self) -> float | None:
        """When the next one comes; None: not before something else happens."""

    def told(self, output: Any, now: float) -> None:
        """Tokens of an answer were sent, or it has ended: an ``EngineCoreOutput`` of vLLM's."""


class VirtualEngine:
    """An engine core's loop around a real scheduler, as vLLM's ``step_with_batch_queue`` is.

    Up to ``steps_in_flight`` steps are scheduled before the first of them has ended; then it waits for that end, and
    what arrives meanwhile is seen afterwards.

    Args:
        driver: of the scheduler.
        clock: in force, which this moves on.
        hardware: says how long a step takes.
        tenants: that send.
        steps_in_flight: 1, or 2 as with async scheduling.
        look: called ten times a second, with the clock's time.
        loaded_tokens: tokens whose keys and values are loaded before a step that was just scheduled.
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
        """That were scheduled and had something in them."""
        self.busy_seconds = 0.0
        """What they took together."""
        self._crowded_seconds = 0.0
        """Of them, those of steps beside which requests waited."""
        self._crowded_seats = 0.0
        """Requests that ran in these, times seconds."""
        self._driver = driver
        self._clock = clock
        self._hardware = hardware
        self._tenants = tenants
        self._steps_in_flight = steps_in_flight
        self._in_flight: deque[tuple[float, Any, Any]] = deque()
        """When they end, what was scheduled, what comes of it."""
        self._busy_until = 0.0
        self._stands_since: float | None = None
        """Since when there are requests of which none can run; None: there are none such."""
        self._look = look
        self._loaded_tokens = loaded_tokens
        self._kept_house = clock.seconds
        self._keep_house: Callable[[], None] = getattr(driver.scheduler, "let_time_pass", lambda: None)

    @property
    def at_a_time(self) -> float:
        """Requests that ran while others waited, on average; 0.0: none ever waited."""
        return self._crowded_seats / self._crowded_seconds if self._crowded_seconds else 0.0

    @property
    def standing_seconds(self) -> float:
        """For how long there have been requests of which none could run."""
        return 0.0 if self._stands_since is None else self._clock.seconds - self._stands_since

    def run(self, is_over: Callable[[], bool]) -> None:
        """Go on until something is over, or nothing is left to do."""
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
                # What time alone does to zones is done meanwhile.
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
            # An empty step ends with what is computed beside it; beside another empty one time would stand still.
            seconds = 0.0 if self._in_flight and begins > self._clock.seconds else self._empty_step()
        self._busy_until = begins + seconds
        self._in_flight.append((self._busy_until, output, result))

    def _empty_step(self) -> float:
        """How long nothing is looked at where nothing can be scheduled: the longer, the longer that has been so."""
        if self._stands_since is None:
            self._stands_since = self._clock.seconds
        seconds = max(_EMPTY_STEP_SECONDS, min(_IDLE_SECONDS, _LONGER * self.standing_seconds))
        arrival = self._tenants.next_arrival()
        return seconds if arrival is None else max(_EMPTY_STEP_SECONDS, min(seconds, arrival - self._clock.seconds))

    def _await_step(self) -> None:
        ends, output, result = self._in_flight.popleft()
        self._pass_time(ends)
        for item in self._driver.update(output, result):
            self._tenants.told(item, self._clock.seconds)

    def _pass_time(self, until: float) -> None:
        self._clock.seconds = max(self._clock.seconds, until)
        if self._clock.seconds - self._kept_house >= _HOUSEKEEPING_SECONDS:
            self._kept_house = self._clock.seconds
            self._keep_house()
            self._look(self._clock.seconds)
