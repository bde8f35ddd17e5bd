"""vLLM's cache of what encoders made of images, sounds and videos, by zone.

An encoding is in use until its tokens are computed, and cached from then on. Room is made of what is cached: first of
zones that have more than the part of the cache that goes with the blocks that they reserve, then of the zone that asks,
and only then of others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Set
from typing import Any

from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.request import Request

from tenantzone_runtime.engine.requests import zone_of
from tenantzone_runtime.zones.encoder_room import EncoderRoom
from tenantzone_runtime.zones.engine import Encoding
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone


class ZoneEncoderCacheManager(EncoderCacheManager):
    """An encoder cache that knows whose encodings it has. Sizes are in embeddings, as vLLM counts them."""

    tenancy: Tenancy | None = None
    """None until the scheduler has one."""
    room: EncoderRoom[Request] | None = None
    """Which zones may have encodings in a step; None until the scheduler has it."""

    def __init__(self, cache_size: int) -> None:
        super().__init__(cache_size)
        self._owners: dict[str, Zone] = {}
        self._held: dict[Zone, int] = {}
        """Embeddings of each zone, in use and cached."""
        self._unused_since: dict[str, float] = {}
        """Monotonic seconds, of encodings that are cached and not in use."""
        self._doomed: set[str] = set()
        """Encodings in use that are to go as soon as they are not."""
        self._made = 0
        """Embeddings that this step makes so far."""

    def held(self, zone: Zone) -> int:
        """Embeddings that a zone has here, in use and cached."""
        return self._held.get(zone, 0)

    def share(self, zone: Zone) -> int:
        """Embeddings that stay cached for a zone whatever others ask for, as far as there is another way."""
        if self.tenancy is None or zone.leaving:
            return 0
        return self.cache_size * zone.spec.quota.reserved // max(1, self.tenancy.ledger.totals.capacity)

    def has_room_for(self, request: Request, computed_tokens: int, step_budget: int, last: int) -> bool:
        """Returns whether the next of a request's media could be encoded now, or none need be.

        Args:
            request: that waits or runs.
            computed_tokens: of its prompt; of one that waits, those that are found in the prefix cache.
            step_budget: embeddings that one step may make.
            last: token that is looked at: what begins behind it is not needed yet.
        """
        for needed in self._needed(request, computed_tokens, last):
            if not self._may_have(request, needed, step_budget - self._made):
                return False
            if needed.compute:
                return True
        return True

    def next_of(self, request: Request, computed_tokens: int, last: int) -> Encoding | None:
        """Returns what the next of a request's media takes; None if none is needed that is not in use already.

        Args:
            request: that waits or runs.
            computed_tokens: of its prompt; of one that waits, those that are found in the prefix cache.
            last: token that is looked at: what begins behind it is not needed yet.
        """
        return next(self._needed(request, computed_tokens, last), None)

    def _needed(self, request: Request, computed_tokens: int, last: int) -> Iterator[Encoding]:
        """Yields what each of a request's media takes that is needed up to ``last`` and not in use already."""
        for position, feature in enumerate(request.mm_features):
            place = feature.mm_position
            if place.offset > last:
                return
            if place.offset + place.length <= computed_tokens or self._is_in_use(feature.identifier):
                continue
            embeddings = int(request.get_num_encoder_embeds(position))
            yield Encoding(embeddings, 0 if feature.identifier in self.cached else embeddings, int(place.offset))

    def could_ever_take(self, needed: Encoding, step_budget: int) -> bool:
        """Whether an encoding fits into an empty cache and into a step that makes nothing else."""
        return needed.cache <= self.cache_size and needed.compute <= step_budget

    def in_use(self) -> Iterator[tuple[int, Set[str]]]:
        """Returns for each encoding that requests use its embeddings, and the ids of these requests."""
        return ((self.num_embeds_by_hash[name], users) for name, users in self.cached.items() if users)

    def put_in_use(self, values: list[Zone | int]) -> None:
        """Append two values for each encoding of a zone that requests use: the zone, and its embeddings."""
        for name, zone in self._owners.items():
            if self._is_in_use(name):
                values += (zone, self.num_embeds_by_hash[name])

    def _is_in_use(self, name: str) -> bool:
        return bool(self.cached.get(name))

    def _may_have(self, request: Request, needed: Encoding, left_in_step: int) -> bool:
        """Returns whether a request may have an encoding now, in addition to what is kept for others.

        Args:
            request: that waits or runs.
            needed: what it takes.
            left_in_step: embeddings that the step may still make.
        """
        left = Encoding(int(self.num_freeable_slots), left_in_step)
        if self.room is None:
            return needed.cache <= left.cache and needed.compute <= left.compute
        return self.room.may_have(zone_of(request), needed, left)

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        # To use what is merely cached takes room, too.
        name = request.mm_features[input_id].identifier
        if name in self.freeable and not self._may_have(request, Encoding(self.freeable[name], 0), 0):
            return False
        return bool(super().check_and_update_cache(request, input_id))

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, num_embeds_to_schedule: int
    ) -> bool:
        # Without zones it is the longest unused that goes, as in vLLM.
        zone = zone_of(request)
        if request.mm_features[input_id].identifier in self.cached:
            # It is cached, and the zone may not use it in this step: it must not be made a second time.
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
        # vLLM asks once in each step, at its end.
        self._made = 0
        freed: list[str] = super().get_freed_mm_hashes()
        return freed

    def forget(self, zone: Zone) -> None:
        """Let go of all that a zone has cached, and of what it has in use once that is not."""
        if zone not in self._held:
            return
        for name in [name for name, owner in self._owners.items() if owner is zone]:
            if name in self.freeable:
                self._evict(name)
            else:
                self._doomed.add(name)

    def forget_old(self, now: float) -> None:
        """Let go of what zones want to have kept no longer than it has been unused."""
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
        """Of what nobody uses, the encoding that makes room for a zone; the longest unused of its kind."""
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
