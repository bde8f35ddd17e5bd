"""A subclass of vLLM's cache of encoder outputs (encodings) of images, sounds and videos, with an owner for each.

An encoding is in use until its tokens are computed, and cached from then on. Each zone has a share of the cache, in
proportion to its reserved blocks. To make room, cached encodings are evicted in this order: those of zones that exceed
their shares, then those of the requesting zone, then those of other zones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Set
from typing import Any

from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.requests import zone_of
from tenantzone_runtime.zones.engine import Encoding
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.encoder_room import EncoderRoom
from tenantzone_runtime.zones.tenancy import Tenancy


class ZoneEncoderCacheManager(EncoderCacheManager):
    """An encoder cache that records the zone that owns each encoding. Sizes are in embeddings, as in vLLM."""

    tenancy: Tenancy | None = None
    """Zones of the engine. None until the scheduler sets the attribute."""
    room: EncoderRoom[Request] | None = None
    """Decides which zones may get encodings in a step. None until the scheduler sets the attribute."""

    def __init__(self, cache_size: int) -> None:
        super().__init__(cache_size)
        self._owners: dict[str, Zone] = {}
        self._held: dict[Zone, int] = {}
        """Number of embeddings of each zone, in use or cached."""
        self._unused_since: dict[str, float] = {}
        """Monotonic time in seconds at which each cached encoding became unused."""
        self._doomed: set[str] = set()
        """Names of encodings in use that will be removed as soon as they are unused."""
        self._made = 0
        """Number of embeddings that were scheduled in this step so far."""

    def held(self, zone: Zone) -> int:
        """Returns the number of a zone's embeddings, in use or cached."""
        return self._held.get(zone, 0)

    def share(self, zone: Zone) -> int:
        """Returns the number of a zone's embeddings that are evicted for other zones only as a last resort."""
        if self.tenancy is None or zone.leaving:
            return 0
        return self.cache_size * zone.spec.quota.reserved // max(1, self.tenancy.ledger.totals.capacity)

    def has_room_for(self, request: Request, computed_tokens: int, step_budget: int, last: int) -> bool:
        """Returns whether a request's next media item could be encoded now. True if no item needs to be encoded.

        Args:
            request: a waiting or running request.
            computed_tokens: the number of computed tokens of the prompt. For a waiting request, the cached tokens.
            step_budget: the maximum number of embeddings that one step computes.
            last: the position of the last token to consider. Media that begin after that token are not needed yet.
        """
        for needed in self._needed(request, computed_tokens, last):
            if not self._may_have(request, needed, step_budget - self._made):
                return False
            if needed.compute:
                return True
        return True

    def next_of(self, request: Request, computed_tokens: int, last: int) -> Encoding | None:
        """Returns the embeddings that a request's next media item needs, or None if all needed items are in use.

        Args:
            request: a waiting or running request.
            computed_tokens: the number of computed tokens of the prompt. For a waiting request, the cached tokens.
            last: the position of the last token to consider. Media that begin after that token are not needed yet.
        """
        return next(self._needed(request, computed_tokens, last), None)

    def _needed(self, request: Request, computed_tokens: int, last: int) -> Iterator[Encoding]:
        """Iterate over the embeddings of media items that a request needs up to token ``last``, except items in use."""
        for position, feature in enumerate(request.mm_features):
            place = feature.mm_position
            if place.offset > last:
                return
            if place.offset + place.length <= computed_tokens or self._is_in_use(feature.identifier):
                continue
            embeddings = int(request.get_num_encoder_embeds(position))
            yield Encoding(embeddings, 0 if feature.identifier in self.cached else embeddings)

    def could_ever_take(self, needed: Encoding, step_budget: int) -> bool:
        """Returns whether an encoding fits into an empty cache, and into a step without other encodings."""
        return needed.cache <= self.cache_size and needed.compute <= step_budget

    def in_use(self) -> Iterator[tuple[int, Set[str]]]:
        """Returns the number of embeddings and the ids of the using requests, for each encoding in use."""
        return ((self.num_embeds_by_hash[name], users) for name, users in self.cached.items() if users)

    def put_in_use(self, values: list[Zone | int]) -> None:
        """Append two values for each encoding in use that a zone owns: the zone, and the number of embeddings."""
        for name, zone in self._owners.items():
            if self._is_in_use(name):
                values += (zone, self.num_embeds_by_hash[name])

    def _is_in_use(self, name: str) -> bool:
        return bool(self.cached.get(name))

    def _may_have(self, request: Request, needed: Encoding, left_in_step: int) -> bool:
        """Returns whether a request may have an encoding now, without using room that is reserved for other zones.

        Args:
            request: a waiting or running request.
            needed: the embeddings that the encoding needs.
            left_in_step: the number of embeddings that the step may still compute.
        """
        left = Encoding(int(self.num_freeable_slots), left_in_step)
        if self.room is None:
            return needed.cache <= left.cache and needed.compute <= left.compute
        return self.room.may_have(zone_of(request), needed, left)

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        # Using a cached encoding also takes room, because an encoding in use can't be evicted.
        name = request.mm_features[input_id].identifier
        if name in self.freeable and not self._may_have(request, Encoding(self.freeable[name], 0), 0):
            return False
        return bool(super().check_and_update_cache(request, input_id))

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, num_embeds_to_schedule: int
    ) -> bool:
        # Without zones, this evicts the encoding that has been unused for the longest time, as vLLM does.
        zone = zone_of(request)
        if request.mm_features[input_id].identifier in self.cached:
            # The zone may not use the cached encoding in this step. The encoding must not be computed a second time.
            return False
        embeddings = int(request.get_num_encoder_embeds(input_id))
        needed = embeddings + num_embeds_to_schedule
        if not self._may_have(request, Encoding(needed, embeddings), encoder_compute_budget):
            return False
        while self.num_free_slots < needed <= self.num_freeable_slots:
            self._evict(self._next_to_go(zone))
        return bool(super().can_allocate(request, input_id, encoder_compute_budget, num_embeds_to_schedule))

    def allocate(self, request: Request, input_id: int) -> None:
        super().allocate(request, input_id)
        embeddings = int(request.get_num_encoder_embeds(input_id))
        self._made += embeddings
        zone = zone_of(request)
        if zone is not None:
            self._owners[request.mm_features[input_id].identifier] = zone
            self._held[zone] = self.held(zone) + embeddings
            if self.room is not None:
                self.room.has_taken(zone)

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        super().free_encoder_input(request, input_id)
        zone = zone_of(request)
        name = request.mm_features[input_id].identifier
        if zone is None or name not in self.freeable:
            return
        self._unused_since[name] = time.monotonic()
        if name in self._doomed or zone.leaving or zone.spec.retention.no_store:
            self._evict(name)

    def get_freed_mm_hashes(self) -> list[str]:
        # Resets the count here, because vLLM calls this method once per step, at the end of the step.
        self._made = 0
        freed: list[str] = super().get_freed_mm_hashes()
        return freed

    def forget(self, zone: Zone) -> None:
        """Remove a zone's cached encodings now, and its encodings in use as soon as they are unused."""
        if zone not in self._held:
            return
        for name in [name for name, owner in self._owners.items() if owner is zone]:
            if name in self.freeable:
                self._evict(name)
            else:
                self._doomed.add(name)

    def forget_old(self, now: float) -> None:
        """Remove encodings that have been unused for at least the TTL of their zones."""
        for name, since in list(self._unused_since.items()):
            if name not in self.freeable:
                del self._unused_since[name]
                continue
            owner = self._owners.get(name)
            ttl = None if owner is None else owner.spec.retention.ttl_seconds
            if ttl is not None and now - since >= ttl:
                self._evict(name)

    def reset(self) -> None:
        super().reset()
        for kept in (self._owners, self._held, self._unused_since, self._doomed):
            kept.clear()

    def _next_to_go(self, zone: Zone | None) -> str:
        """Returns the name of the unused encoding to evict for a zone.

        This is the LRU encoding of zones that exceed their shares, else of the zone itself, else of any zone.
        """
        its_own = anybody = ""
        for name in self.freeable:
            owner = self._owners.get(name)
            if owner is None or self.held(owner) > self.share(owner):
                return str(name)
            anybody = anybody or name
            its_own = its_own or (name if owner is zone else "")
        return its_own or anybody

    def _evict(self, name: str) -> None:
        embeddings: int = self.freeable.pop(name)
        del self.cached[name], self.num_embeds_by_hash[name]
        self.freed.append(name)
        self.num_free_slots += embeddings
        self._unused_since.pop(name, None)
        self._doomed.discard(name)
        owner: Any = self._owners.pop(name, None)
        if owner is not None:
            self._held[owner] -= embeddings
            if not self._held[owner]:
                del self._held[owner]
