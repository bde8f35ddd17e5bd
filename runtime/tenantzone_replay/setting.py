"""The load and the engine that all policies of a comparison share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenantzone_replay.hardware import Hardware
from tenantzone_replay.load import Asked
from tenantzone_replay.measures import Target
from tenantzone_replay.profile import Profile
from tenantzone_runtime.engine.engine_shape import EngineShape

OnAnswered = Callable[[int, str, int, int], None]
"""Called with a request's number in the load, its tenant, its prompt tokens and its hit tokens."""


def no_one(number: int, tenant: str, prompt_tokens: int, hit_tokens: int) -> None:
    """Do nothing: no one listens to answered requests."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A load, and the engine that serves it."""

    load: Callable[[], Iterator[Asked]]
    """Restarts the load; all its tenants are named."""
    profile: Profile
    shape: EngineShape
    hardware: Hardware
    target: Target
    steps_in_flight: int = 1
    """The number of concurrent steps; 2 with async scheduling."""
    in_flight: int | None = None
    """The number of concurrent requests, where the next is sent when one ends; None: they arrive as the load says."""
    on_answered: OnAnswered = no_one
    """Called with each answered request."""
