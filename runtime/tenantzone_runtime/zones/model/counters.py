"""A zone's counters, which count events since the zone was created.

The code that causes an event increments the counter itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, Literal, Self

from tenantzone_contract.reports.words import EvictionReason, WaitReason
from tenantzone_runtime.zones.model.flat import put_mapping, take, take_mapping
from tenantzone_runtime.zones.model.histogram import Histogram, add_growth

Outcome = Literal["stop", "length", "abort", "error", "refused", "queue_full", "other"]
"""How a request ended. stop, length, abort, error: vLLM's finish reasons. other: any other finish reason of vLLM.
queue_full: the request was refused because its zone's queue was full. refused: it was refused for another reason."""

Beneficiary = Literal["self", "higher_priority", "same_priority", "lower_priority", "none"]
"""The zone for which blocks were evicted, by its priority relative to the zone that lost the blocks. none: no zone, or
a request that arrived before any zone was declared."""

_OTHERS: Final[tuple[Beneficiary, ...]] = ("higher_priority", "same_priority", "lower_priority")

EVICTIONS_FOR: Final[dict[EvictionReason, tuple[Beneficiary, ...]]] = {
    "quiet": (*_OTHERS, "none"),
    "reclaim": _OTHERS,
    "own": ("self",),
    "limit": ("self", "none"),
    "relief": (*_OTHERS, "none"),
    "watermark": ("none",),
    "due": _OTHERS,
    "idle": ("none",),
    "ttl": ("none",),
    "no_store": ("none",),
    "purge": ("none",),
    "removed": ("none",),
    "reset": ("none",),
}
"""Possible beneficiaries of evictions, by reason. No other combinations occur."""

TAKEN_FOR: Final[tuple[EvictionReason, ...]] = ("quiet", "reclaim", "relief", "watermark")
"""Reasons of evictions that other zones cause. All other evictions are caused by the zone itself, its spec or an
administrator."""

STARVED_FOR: Final[tuple[WaitReason, ...]] = ("reserved", "in_use")
"""Reasons to wait for blocks that other zones use or have reserved. Waiting because of the zone's own limit does not
count, because such waits are intended."""


@dataclass(slots=True)
class Counters:
    """The totals of one zone, which never decrease. Each name contains the unit, such as tokens, blocks or seconds."""

    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    computed_tokens: int = 0
    """Number of prompt and generated tokens computed in steps. Recomputed tokens do not count again."""
    computed_first_tokens: int = 0
    """Number of tokens that steps computed for the first time. ``zones.model.processed_tokens`` defines this counter
    and the next four."""
    recomputed_tokens: int = 0
    rejected_draft_tokens: int = 0
    loaded_tokens: int = 0
    """Number of tokens loaded from tiers, including tokens loaded again after a preemption."""
    hit_tokens: int = 0
    """Number of prompt and generated tokens found in the prefix cache, including tokens found again after a preemption.
    """
    withheld_tokens: int = 0
    """Number of tokens that the zone's requests could have computed in a step, but that the step kept for other zones
    or left out because of a latency target."""
    preemptions: int = 0
    violations: int = 0
    """Number of requests of the zone that were about to use a block of another zone."""
    scrubbed_blocks: int = 0
    """Number of blocks of the zone that were zeroed because another zone got them."""
    block_seconds: float = 0.0
    """Number of blocks that the zone held (in use or cached), times seconds."""
    lent_block_seconds: float = 0.0
    """Blocks of the zone's reservation that other zones had borrowed, times seconds."""
    borrowed_block_seconds: float = 0.0
    evictions: dict[tuple[EvictionReason, Beneficiary], int] = field(default_factory=dict)
    """Number of cached blocks that the zone lost, by reason and beneficiary. Zeros are left out."""
    requests: dict[Outcome, int] = field(default_factory=dict)
    """Number of requests that have ended, by outcome."""
    stalled_seconds: dict[WaitReason, float] = field(default_factory=dict)
    """Seconds in which the zone's next request waited, by reason."""
    queue_time: Histogram = field(default_factory=Histogram)
    """Seconds from a request's arrival until it was first scheduled."""
    time_to_first_token: Histogram = field(default_factory=Histogram)
    """Seconds from a request's arrival until its first token left the engine core."""

    def request_ended(self, outcome: Outcome) -> None:
        self.requests[outcome] = self.requests.get(outcome, 0) + 1

    @property
    def evicted(self) -> dict[EvictionReason, int]:
        """Number of cached blocks that the zone lost, by reason."""
        return evicted_by_reason(self.evictions)

    @property
    def taken_blocks(self) -> int:
        """Number of cached blocks that the zone lost because of other zones."""
        return sum(blocks for (reason, _), blocks in self.evictions.items() if reason in TAKEN_FOR)

    @property
    def starved_seconds(self) -> float:
        """Seconds in which the zone's next request waited for blocks that other zones use or have reserved."""
        return sum((self.stalled_seconds.get(reason, 0.0) for reason in STARVED_FOR), 0.0)

    def add_growth(self, newer: "Counters", older: "Counters") -> None:
        """Add the increase of another zone's counters from the snapshot ``older`` to the snapshot ``newer``.

        No sum decreases, not even by rounding errors.
        """
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + (getattr(newer, name) - getattr(older, name)))
        add_growth(self.evictions, newer.evictions, older.evictions)
        add_growth(self.requests, newer.requests, older.requests)
        add_growth(self.stalled_seconds, newer.stalled_seconds, older.stalled_seconds)
        self.queue_time.add_growth(newer.queue_time, older.queue_time)
        self.time_to_first_token.add_growth(newer.time_to_first_token, older.time_to_first_token)

    def put(self, values: list[Any]) -> None:
        """Append all counts to ``values``, from which :meth:`take` can make a copy later."""
        values += _read_numbers(self)
        put_mapping(values, self.evictions)
        put_mapping(values, self.requests)
        put_mapping(values, self.stalled_seconds)
        self.queue_time.put(values)
        self.time_to_first_token.put(values)

    @classmethod
    def take(cls, values: Iterator[Any]) -> Self:
        return cls(
            **dict(zip(_NUMBERS, take(values, len(_NUMBERS)), strict=True)),
            evictions=take_mapping(values),
            requests=take_mapping(values),
            stalled_seconds=take_mapping(values),
            queue_time=Histogram.take(values),
            time_to_first_token=Histogram.take(values),
        )

    def catch_up(self, newer: "Counters") -> None:
        """Update this copy to the current counts of the zone that it was copied from."""
        for name in _NUMBERS:
            setattr(self, name, getattr(newer, name))
        self.evictions.update(newer.evictions)
        self.requests.update(newer.requests)
        self.stalled_seconds.update(newer.stalled_seconds)
        self.queue_time.catch_up(newer.queue_time)
        self.time_to_first_token.catch_up(newer.time_to_first_token)

    def copy(self) -> "Counters":
        return Counters(
            self.prefix_query_tokens,
            self.prefix_hit_tokens,
            self.prompt_tokens,
            self.generation_tokens,
            self.computed_tokens,
            self.computed_first_tokens,
            self.recomputed_tokens,
            self.rejected_draft_tokens,
            self.loaded_tokens,
            self.hit_tokens,
            self.withheld_tokens,
            self.preemptions,
            self.violations,
            self.scrubbed_blocks,
            self.block_seconds,
            self.lent_block_seconds,
            self.borrowed_block_seconds,
            self.evictions.copy(),
            self.requests.copy(),
            self.stalled_seconds.copy(),
            self.queue_time.copy(),
            self.time_to_first_token.copy(),
        )


_NUMBERS: Final = tuple(each.name for each in fields(Counters) if each.default is not MISSING)
_read_numbers = attrgetter(*_NUMBERS)


def evicted_by_reason(evictions: Mapping[tuple[EvictionReason, Beneficiary], int]) -> dict[EvictionReason, int]:
    """Returns the number of blocks evicted for each reason, summed over beneficiaries."""
    evicted: dict[EvictionReason, int] = {}
    for (reason, _), blocks in evictions.items():
        evicted[reason] = evicted.get(reason, 0) + blocks
    return evicted
