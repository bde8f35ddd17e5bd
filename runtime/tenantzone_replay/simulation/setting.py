"""Defines a load and an engine, which are the same for all policies in a comparison."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenantzone_replay.simulation.hardware import Hardware
from tenantzone_replay.simulation.measures import Target
from tenantzone_replay.simulation.profile import Profile
from tenantzone_replay.traces.load import Asked
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape

OnAnswered = Callable[[int, str, int, int], None]
"""A callback whose arguments are a request's number in the load, its tenant, its prompt tokens and its hit tokens."""


def no_one(number: int, tenant: str, prompt_tokens: int, hit_tokens: int) -> None:
    """Do nothing. This is the default of ``Setting.on_answered``."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A load, and the engine that serves it."""

    load: Callable[[], Iterator[Asked]]
    """Returns a new iterator over the load from its beginning. All requests have a tenant."""
    profile: Profile
    shape: EngineShape
    hardware: Hardware
    target: Target
    steps_in_flight: int = 1
    """Maximum number of steps in flight: 2 with async scheduling, otherwise 1."""
    in_flight: int | None = None
    """Number of concurrent requests. Whenever a request ends, the next request of the load is sent.

    If None, requests are sent at their arrival times instead.
    """
    on_answered: OnAnswered = no_one
    """Called after each answered request."""
