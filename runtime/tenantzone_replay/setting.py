"""What all policies of a comparison have in common."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenantzone_replay.hardware import Hardware
from tenantzone_replay.load import Asked
from tenantzone_replay.measures import Target
from tenantzone_replay.profile import Profile
from tenantzone_runtime.engine.engine_shape import EngineShape

Told = Callable[[int, str, int, int], None]
"""Takes a request's number in the load, its tenant, the tokens of its prompt, and how many of them were found."""


def no_one(number: int, tenant: str, prompt_tokens: int, hit_tokens: int) -> None:
    """Whom nobody tells."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A load, and the engine that serves it."""

    load: Callable[[], Iterator[Asked]]
    """Begins it anew; all its tenants are named."""
    profile: Profile
    shape: EngineShape
    hardware: Hardware
    target: Target
    steps_in_flight: int = 1
    """2 as with async scheduling."""
    in_flight: int | None = None
    """Requests that are under way at a time, the next one sent when one ends; None: they come when the load says."""
    told: Told = no_one
    """Called with each request that was answered."""
