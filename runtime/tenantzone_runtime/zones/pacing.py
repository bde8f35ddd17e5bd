"""What latency targets leave of a step, and the prompts that this is decided by."""

from dataclasses import dataclass, field
from typing import Generic

from tenantzone_runtime.zones.deficits import CHUNK
from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.zone import Zone


@dataclass(slots=True)
class Prompts:
    """What a zone has to compute of prompts, of running requests and of those that may begin."""

    tokens: int = 0
    count: int = 0
    """Prompts of these tokens: no more are looked at than a step could compute."""
    expected: float = 0.0
    """How many of these will be computed, if as large a part of the waiting prompts is cached as was of late."""
    computed: int = 0
    """Tokens of the first of these that are computed already: each further one is attended to them."""
    chunk: int = 1
    """How many tokens of it a step computes at least, or none."""

    @property
    def at_once(self) -> int:
        """Tokens of the first that are computed where it is to go on whatever a bound says."""
        return max(CHUNK, self.chunk)


@dataclass(slots=True)
class Pacing(Generic[W]):
    """What targets leave of a step."""

    sit_out: set[W] = field(default_factory=set)
    """Requests that generate and are not computed in this step."""
    prompt_tokens: dict[Zone, int] = field(default_factory=dict)
    """Of prompts of zones with a target."""
    of_others: int = 0
    """Tokens of prompts of all other zones together."""
    overdue: Zone | None = None
    """The one of these whose prompts were not computed for so long that they are now, ..."""
    of_overdue: int = 0
    """... with so many tokens at least, whatever is left."""
    bound: float | None = None
    """Seconds that other zones are not to exceed in the step; None: zones with targets exceed them alone."""
    may_go_on: set[Zone] = field(default_factory=set)
    """Zones with tokens enough for their prompts to go on: if they do not, it is for another reason."""
