"""The prompts that a step may compute, by zone, with the number of their remaining tokens."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tokens.pacing import Prompts

LOOKED_AT: Final = 8
"""Maximum number of zones with waiting requests that are considered before a step. Other zones get their turn later."""

Waiting = Mapping[Zone, tuple[W, Iterator[W]]]
"""Zones whose requests may be admitted in a step. Each value contains the zone's first such request and the others."""


class StepPrompts(Generic[W]):
    """Finds the prompts that the next step of one engine may compute, without deciding which it computes.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        next_zones: returns the zones with waiting requests that may have seats, in order: zones that are entitled to
            seats, then the zones in its argument, and then the others.
        free_seats: returns the number of seats that are free, or will be free before the step.
        ready: returns a zone's waiting requests that would be admitted in a row now, given enough tokens.
        fitting: returns the number of prompt tokens of a running request that blocks and encoder allow in this step.
        hit_share: returns the fraction of a zone's recent prompts that was found cached.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        engine: Engine[W],
        next_zones: Callable[[Iterable[Zone]], Iterable[Zone]],
        free_seats: Callable[[], int],
        ready: Callable[[Zone], Iterator[W]],
        fitting: Callable[[W], int],
        hit_share: Callable[[Zone], float],
    ) -> None:
        self._tenancy = tenancy
        self._engine = engine
        self._next_zones = next_zones
        self._free_seats = free_seats
        self._ready = ready
        self._fitting = fitting
        self._hit_share = hit_share

    def that_fit(self, in_prompts: Iterable[W]) -> Mapping[W, int]:
        """Returns the running requests whose prompts this step could continue, each with its number of prompt tokens.

        Tokens for any other request would be wasted: it waits for blocks or encoder room, and the requests that hold
        these need the tokens to finish.
        """
        return {work: tokens for work in in_prompts if (tokens := self._fitting(work))}

    def waiting(self, bounds: Iterable[Zone]) -> Waiting[W]:
        """Returns the zones whose requests may be admitted in this step.

        Zones, including those with current latency targets (``bounds``), are considered until there is one for each
        free seat.
        """
        waiting: dict[Zone, tuple[W, Iterator[W]]] = {}
        if not self._engine.is_open or not len(self._engine.waiting):
            return waiting
        seats = self._free_seats()
        for zone in dict.fromkeys(islice(self._next_zones(bounds), LOOKED_AT)):
            if len(waiting) == seats:
                break
            ready = self._ready(zone)
            for work in ready:
                waiting[zone] = work, ready
                break
        # A request without a seat can't use tokens. Assume one seat for each zone; spare seats can go to any zone.
        spare = seats - len(waiting)
        return {zone: (first, islice(others, spare)) for zone, (first, others) in waiting.items()}

    def compete(self, in_prompts: Collection[W], waiting: Iterable[Zone], *, may_cut_drafts: bool) -> bool:
        """Whether several zones have prompts, or a single zone has prompts that may delay other zones' decodes.

        Args:
            in_prompts: running requests whose prompts this step could continue.
            waiting: zones whose requests may be admitted.
            may_cut_drafts: whether drafts may be cut for prompts.
        """
        zones = {*(work.zone for work in in_prompts), *waiting}
        may_stand_behind = len(in_prompts) > 0 or may_cut_drafts
        if len(zones) != 1 or not may_stand_behind or len(self._tenancy.ledger.zones) == 1:
            return len(zones) > 1
        return any(work.zone not in zones for work in self._engine.running)

    def is_one_zone_alone(self, bounds: Iterable[Zone]) -> bool:
        """Whether only one zone has running or waiting requests or a current target, so that it can't delay others."""
        zones = {*bounds, *(work.zone for work in self._engine.running), *islice(self._next_zones(()), 2)}
        return len(zones) == 1

    def by_zone(self, in_prompts: Mapping[W, int], waiting: Waiting[W], budget: int) -> dict[Zone, Prompts]:
        """Returns the prompts of each zone. To each zone, waiting prompts are added until its prompts reach the budget.

        Args:
            in_prompts: result of `that_fit`.
            waiting: result of `waiting`.
            budget: number of tokens.
        """
        prompts: dict[Zone, Prompts] = {}
        for work, tokens in in_prompts.items():
            self._add(prompts, work, tokens, tokens)
        for zone, (first, others) in waiting.items():
            uncached = 1.0 - self._hit_share(zone)
            for work in chain((first,), others):
                tokens = self._engine.tokens_left(work)
                self._add(prompts, work, tokens, uncached * tokens)
                if prompts[zone].tokens >= budget:
                    break
        return prompts

    def _add(self, prompts: dict[Zone, Prompts], work: W, tokens: int, expected: float) -> None:
        own = prompts.get(work.zone)
        if own is None:
            own = prompts[work.zone] = Prompts(
                computed=self._engine.tokens_computed(work), chunk=self._engine.chunk_tokens(work)
            )
        own.tokens += tokens
        own.count += 1
        own.expected += expected
