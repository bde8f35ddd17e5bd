"""The plan for a step that is bounded by latency targets, and the prompts on which it depends."""

from dataclasses import dataclass, field
from typing import Generic

from tenantzone_runtime.zones.engine import W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tokens.deficits import CHUNK


@dataclass(slots=True)
class Prompts:
    """A zone's uncomputed prompts: those of its running requests, and of its waiting requests that may begin."""

    tokens: int = 0
    count: int = 0
    """Number of examined prompts, at most as many as a step could compute."""
    expected: float = 0.0
    """Expected number of tokens to compute, after the usual prefix hits of the zone."""
    computed: int = 0
    """Number of computed tokens of the first prompt, to which each further token attends."""
    chunk: int = 1
    """Minimum number of tokens of the first prompt that a step computes, if it computes any."""

    @property
    def at_once(self) -> int:
        """Number of tokens of the first prompt that a step computes if the prompt continues despite a bound."""
        return max(CHUNK, self.chunk)


@dataclass(slots=True)
class Pacing(Generic[W]):
    """The plan for one step that is bounded by latency targets."""

    sit_out: set[W] = field(default_factory=set)
    """Generating requests that this step skips."""
    prompt_tokens: dict[Zone, int] = field(default_factory=dict)
    """Number of prompt tokens for each zone with a target."""
    of_others: int = 0
    """Number of prompt tokens for all other zones together."""
    overdue: Zone | None = None
    """The zone whose prompts have waited too long, and are computed despite the bound."""
    of_overdue: int = 0
    """Minimum number of tokens for the overdue zone."""
    bound: float | None = None
    """Seconds to which other zones should keep the step; None if the zones with targets alone exceed their bound."""
    may_go_on: set[Zone] = field(default_factory=set)
    """Zones that get enough tokens for their prompts. If such a prompt does not continue, it lacks something else."""
