"""What latency targets leave of a step, and the prompts that this depends on."""

from dataclasses import dataclass, field
from typing import Generic

from tenantzone_runtime.zones.deficits import CHUNK
from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.zone import Zone


@dataclass(slots=True)
class Prompts:
    """The prompts of a zone that are still to be computed: of running requests, and of waiting ones that may begin."""

    tokens: int = 0
    count: int = 0
    """The number of prompts that were examined: at most as many as a step could compute."""
    expected: float = 0.0
    """The tokens that remain after the usual cache hits of the zone."""
    computed: int = 0
    """Tokens of the first prompt that are computed already; each further token attends to them."""
    chunk: int = 1
    """The smallest number of tokens of it that a step computes, unless it computes none."""

    @property
    def at_once(self) -> int:
        """The tokens of the first prompt that a step computes if the prompt continues regardless of a bound."""
        return max(CHUNK, self.chunk)


@dataclass(slots=True)
class Pacing(Generic[W]):
    """What targets leave of a step."""

    sit_out: set[W] = field(default_factory=set)
    """Generating requests that this step skips."""
    prompt_tokens: dict[Zone, int] = field(default_factory=dict)
    """Tokens of prompts, for each zone with a target."""
    of_others: int = 0
    """Tokens of prompts for all other zones together."""
    overdue: Zone | None = None
    """The zone whose prompts waited too long, and are computed now."""
    of_overdue: int = 0
    """The fewest tokens that it gets."""
    bound: float | None = None
    """Seconds that other zones should not exceed in the step; None: zones with targets alone exceed them."""
    may_go_on: set[Zone] = field(default_factory=set)
    """Zones with enough tokens for their prompts: if these do not continue, there is another reason."""
