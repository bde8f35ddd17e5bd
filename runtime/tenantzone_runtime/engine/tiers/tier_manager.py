"""Manages the keys of the CPU memory tier like vLLM, and also limits stores and loads to the rights of each zone."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vllm.v1.kv_offload.base import (
    LoadStoreSpec,
    LookupResult,
    OffloadingEvent,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier import Tier

CHUNKS_AT_ONCE: Final = 200
"""Maximum number of chunks to evict before the lock is released. Evicting them takes some tenths of a millisecond."""


@dataclass(slots=True)
class _Caller:
    """The manager's state for one request."""

    zone: Zone
    hits: set[OffloadKey] = field(default_factory=set)
    """Keys of hits that were reported to the request and are not being loaded yet."""
    awaited: list[OffloadKey] = field(default_factory=list)
    """Keys whose chunks were still being stored in the tier at the request's last look-up."""
    promoted: set[OffloadKey] = field(default_factory=set)
    """Keys that were loaded for the request from a lower tier."""
    keys: dict[OffloadKey, None] = field(default_factory=dict)
    """Keys that the request has stored or loaded, in prompt order. Chunk ids would be reused after eviction."""
    stored: set[OffloadKey] = field(default_factory=set)
    """Keys that the request has stored or is storing."""
    hits_of_prompt: Callable[[], list[list[OffloadKey]]] | None = None
    """Returns the keys of each possible hit of the prompt, longest first. None if chunks can be used one by one."""
    hits_there: list[list[OffloadKey]] = field(default_factory=list)
    """Keys of each hit that was completely in the tier when the request ended, longest first."""
    needed: int = 0
    """Number of chunks in the longest hit of the prompt, if chunks are only useful together."""
    counted_on: set[OffloadKey] = field(default_factory=set)
    """Keys of the prompt that the request has found or stored, if chunks are only useful together."""
    is_cut: bool = False
    """Whether the tier had no room for a chunk of the prompt, so that the other chunks are useless."""
    is_refused: bool | None = None
    """Whether the zone's admission terms have refused a chunk of the prompt. None before the first check."""
    is_condemned: bool = False
    """Whether all chunks that the request has stored must be removed."""
    is_finished: bool = False


class ZoneOffloadingManager(CPUOffloadingManager):
    """vLLM's manager of the CPU memory tier, in which each request stores and finds only chunks of its zone.

    A request without a zone finds nothing and stores nothing. No method blocks. If a zone may not store all chunks,
    fewer keys are stored. If a zone may not load, look-ups miss.

    Args:
        tier: the tier's ledger, with the shares of zones and the number of chunks.
        enable_events: whether to emit events for added and removed keys.
    """

    def __init__(self, tier: Tier, enable_events: bool = False) -> None:
        super().__init__(tier.chunk_count, enable_events=enable_events)
        self.tier = tier
        self._keys: dict[int, OffloadKey] = {}
        """Keys of owned chunks, by chunk id."""
        self._bound: dict[str, str | None] = {}
        self._counted_on: Counter[tuple[Zone | None, OffloadKey | None]] = Counter()
        """Number of active requests that rely on a key, by zone and key, if chunks are only useful together."""
        tier.is_counted_on = self._is_counted_on

    def bind(self, request_id: str, tenant: str | None) -> None:
        """Set the tenant of a request, before vLLM calls ``on_new_request`` for it.

        Args:
            request_id: the id of a request that the scheduler has bound to a zone by its seal.
            tenant: the tenant of the zone, or None if no zone was declared when the request arrived.
        """
        self._bound[request_id] = tenant

    # Outside the steps, in parts

    def apply(self, config: RuntimeConfig) -> Iterator[None]:
        """Enforce a new config of the engine's zones and of their shares of the tier."""
        for _, given_up in self.tier.apply_in_parts(config, time.monotonic(), CHUNKS_AT_ONCE):
            self._forget(given_up)
            yield

    def upkeep(self) -> Iterator[None]:
        """Apply timeouts to zones and their chunks. Called several times a second."""
        yield from self._forget_parts(self.tier.upkeep_in_parts(time.monotonic(), CHUNKS_AT_ONCE))

    def forget_all(self) -> Iterator[None]:
        """Evict all chunks. Called after the salt key has changed, because no request can find the chunks any more."""
        yield from self._forget_parts(self.tier.evict_all(CHUNKS_AT_ONCE))

    def _forget_parts(self, parts: Iterable[list[int]]) -> Iterator[None]:
        for given_up in parts:
            self._forget(given_up)
            yield

    # Requests

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        now = time.monotonic()
        if req_context.req_id in self._bound:
            zone = self.tier.zone_for(self._bound.pop(req_context.req_id), now)
            if zone is not None:
                req_context.set_state(_Caller(zone))
                self.tier.request_arrived(zone, now)
        return super().on_new_request(req_context)

    def know_prompt(self, req_context: ReqContext, hits: Callable[[], list[list[OffloadKey]]], needed: int) -> None:
        """Set the possible hits of a new request's prompt, if its chunks are only useful together.

        Args:
            req_context: the request's context.
            hits: returns the keys of each possible hit of the prompt, longest first.
            needed: the number of chunks in the longest hit.
        """
        caller = req_context.get_state(_Caller)
        if caller is not None:
            caller.hits_of_prompt, caller.needed = hits, needed

    def on_request_finished(self, req_context: ReqContext) -> None:
        super().on_request_finished(req_context)
        caller = req_context.get_state(_Caller)
        if caller is not None and not caller.is_finished:
            caller.is_finished = True
            self.tier.use(caller.zone, self._chunk_ids(reversed(caller.keys)))
            if caller.hits_of_prompt is not None:
                self._link(caller, caller.hits_of_prompt())
            self.tier.request_finished(caller.zone, time.monotonic())

    def _link(self, caller: _Caller, prompt: list[list[OffloadKey]]) -> None:
        """Link the chunks of each complete hit of a prompt. Evict the prompt's other chunks that no request needs."""
        caller.hits_there = [keys for keys in prompt if all(self._policy.get(key) is not None for key in keys)]
        hits = [self._chunk_ids(keys) for keys in caller.hits_there]
        for hit in hits:
            # The shortest hit comes last, and so is evicted last, because more prompts can use it than longer hits.
            self.tier.use(caller.zone, reversed(hit))
        self._forget(self.tier.link(caller.zone, self._chunk_ids(self._count_off(caller)), hits))

    def _count_on(self, caller: _Caller, keys: Iterable[OffloadKey]) -> None:
        """Record that a request relies on those keys that are in the tier, until the request ends."""
        if caller.hits_of_prompt is not None:
            new = [key for key in keys if key not in caller.counted_on and self._policy.get(key) is not None]
            caller.counted_on.update(new)
            self._counted_on.update((caller.zone, key) for key in new)

    def _is_counted_on(self, chunk_id: int) -> bool:
        """Returns whether a request of the zone that owns a chunk relies on the chunk."""
        return (self.tier.ledger.owner[chunk_id], self._keys.get(chunk_id)) in self._counted_on

    def _count_off(self, caller: _Caller) -> list[OffloadKey]:
        """Record that a request has ended. Returns the keys that no request of its zone relies on any more."""
        zone = caller.zone
        self._counted_on.subtract((zone, key) for key in caller.counted_on)
        left = [key for key in caller.counted_on if not self._counted_on[zone, key]]
        for key in left:
            del self._counted_on[zone, key]
        return left

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        super().touch(keys, req_context)
        caller = req_context.get_state(_Caller)
        if caller is not None:
            self.tier.use(caller.zone, reversed(self._chunk_ids(keys)))

    def condemn(self, req_context: ReqContext) -> list[OffloadKey]:
        """Remove all chunks that a request has stored or is storing, because they may be wrong. Returns their keys."""
        caller = req_context.get_state(_Caller)
        if caller is None:
            return []
        caller.is_condemned = True
        self.lose(caller.stored, req_context)
        return list(caller.stored)

    def lose(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        """Remove the chunks that a request has stored or is storing under these keys, because they may be wrong."""
        caller = req_context.get_state(_Caller)
        for chunk_id in self._chunk_ids(keys) if caller is not None else ():
            self._forget(self.tier.lose(caller.zone, chunk_id))

    def let_go(self, req_context: ReqContext) -> None:
        """Allow eviction of chunks that a request has stored, to make room for the request's next chunks.

        The caller must have copied the stored chunks to a lower tier.
        """
        caller = req_context.get_state(_Caller)
        if caller is not None:
            caller.keys.clear()

    # Loads

    def begin_lookup(self, req_context: ReqContext) -> None:
        """Reset a request's look-up state. Call this before its prompt is looked up again."""
        caller = req_context.get_state(_Caller)
        if caller is not None:
            caller.hits.clear()
            caller.awaited.clear()

    def is_awaiting(self, req_context: ReqContext) -> bool:
        """Returns whether any chunk that was being stored at a request's last look-up is still being stored."""
        caller = req_context.get_state(_Caller)
        if caller is None:
            return False
        while caller.awaited and not self._is_storing(caller, caller.awaited[-1]):
            caller.awaited.pop()
        return bool(caller.awaited)

    def loadable(self, req_context: ReqContext) -> int:
        """Returns the maximum number of chunks that a request may load now."""
        caller = req_context.get_state(_Caller)
        return 0 if caller is None else self.tier.loadable(caller.zone)

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        caller, chunk = req_context.get_state(_Caller), self._policy.get(key)
        if caller is None or chunk is None:
            return LookupResult.MISS
        if self.tier.is_storing(caller.zone, chunk.chunk_id):
            caller.awaited.append(key)
            return LookupResult.HIT_PENDING
        if not self.tier.has_stored(caller.zone, chunk.chunk_id):
            return LookupResult.MISS
        if key not in caller.hits and len(caller.hits) >= self.tier.loadable(caller.zone):
            return LookupResult.MISS
        caller.hits.add(key)
        return LookupResult.HIT

    def _is_storing(self, caller: _Caller, key: OffloadKey) -> bool:
        chunk = self._policy.get(key)
        return chunk is not None and self.tier.is_storing(caller.zone, chunk.chunk_id)

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> LoadStoreSpec:
        caller = req_context.get_state(_Caller)
        assert caller is not None, "only a request of a zone loads chunks"
        chunk_ids = self._chunk_ids(keys)
        assert all(self.tier.has_stored(caller.zone, chunk_id) for chunk_id in chunk_ids), "another zone's chunk"
        spec: LoadStoreSpec = super().prepare_load(keys, req_context)
        self.tier.load(caller.zone, chunk_ids)
        caller.hits.clear()
        caller.keys.update(dict.fromkeys(keys))
        self._count_on(caller, keys)
        return spec

    def complete_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        chunk_ids = self._chunk_ids(keys)
        super().complete_load(keys, req_context)
        self._forget(self.tier.loaded(chunk_ids))

    # Stores

    def prepare_store(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput:
        caller = req_context.get_state(_Caller)
        if caller is None or caller.is_condemned or caller.is_cut or caller.needed > caller.zone.spec.quota.limit:
            return PrepareStoreOutput([], CPULoadStoreSpec([]), [])
        keys = self._admitted(keys, caller)
        if caller.hits_of_prompt is not None and caller.is_refused:
            return PrepareStoreOutput([], CPULoadStoreSpec([]), [])
        output = self._prepare_store(keys, caller, req_context)
        caller.stored.update(output.keys_to_store)
        if caller.hits_of_prompt is not None:
            caller.is_cut = any(self._policy.get(key) is None for key in keys)
        return output

    def _admitted(self, keys: Collection[OffloadKey], caller: _Caller) -> Collection[OffloadKey]:
        """Returns each of the keys that is in the tier already, or that the zone's admission terms allow."""
        zone, admission, now = caller.zone, self.tier.admission, self.tier.ledger.now
        if not admission.is_selective(zone):
            return keys
        new = [key for key in keys if self._policy.get(key) is None]
        if caller.hits_of_prompt is None:
            admitted = admission.admitted(zone, new, now, is_cut=bool(caller.is_refused))
            caller.is_refused = caller.is_refused or admitted < len(new)
            refused = set(new[admitted:])
            return [key for key in keys if key not in refused]
        if caller.is_refused is None:
            ends = [keys[-1] for keys in caller.hits_of_prompt()]
            caller.is_refused = not admission.admits_any(zone, ends, now)
        if caller.is_refused:
            admission.count_not_admitted(zone, len(new))
        return keys

    def _prepare_store(
        self, keys: Collection[OffloadKey], caller: _Caller, req_context: ReqContext
    ) -> PrepareStoreOutput:
        there = [key for key in keys if self._policy.get(key) is not None]
        new = [key for key in keys if self._policy.get(key) is None]
        # Earlier chunks of the same prompt must not be evicted, because later chunks are useless without them.
        beginning = dict.fromkeys([*caller.keys, *there, *caller.hits])
        # Other chunks of a hit may be evicted while this request relies on a chunk of the hit. `_link` must then evict
        # that chunk when the request ends, unless the chunk belongs to another hit.
        self._count_on(caller, beginning)
        is_linked = caller.hits_of_prompt is not None
        granted, given_up = self.tier.make_room(caller.zone, len(new), self._chunk_ids(beginning), whole=is_linked)
        evicted = self._forget(given_up)
        output = super().prepare_store([*there, *new[:granted]], req_context)
        assert output is not None, "vLLM found no room, although the tier has made room"
        chunk_ids = self._chunk_ids(output.keys_to_store)
        self.tier.store(caller.zone, chunk_ids)
        self._keys.update(zip(chunk_ids, output.keys_to_store, strict=True))
        caller.keys.update(dict.fromkeys(output.keys_to_store))
        self._count_on(caller, output.keys_to_store)
        output.evicted_keys = evicted
        return output

    def complete_store(self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True) -> None:
        chunk_ids = dict(zip(self._chunk_ids(keys), keys, strict=True))
        given_up = self.tier.stored(chunk_ids, success=success)
        dropped = [self._keys.pop(chunk_id) for chunk_id in given_up if chunk_id in chunk_ids]
        kept = [key for chunk_id, key in chunk_ids.items() if chunk_id in self._keys]
        super().complete_store(kept, req_context)
        super().complete_store(dropped, req_context, success=False)
        self._forget(chunk_id for chunk_id in given_up if chunk_id not in chunk_ids)

    # Transfers from and to lower tiers, with the names of vLLM's tiering manager

    def are_kept(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> list[OffloadKey]:
        """Returns those keys whose chunks are in the tier, readable, and owned by the request's zone."""
        caller = req_context.get_state(_Caller)
        chunks: Sequence[tuple[OffloadKey, Any]] = [(key, self._policy.get(key)) for key in keys]
        return [
            key
            for key, chunk in chunks
            if caller is not None and chunk is not None and self.tier.has_stored(caller.zone, chunk.chunk_id)
        ]

    def whole_hits(self, req_context: ReqContext) -> list[list[OffloadKey]]:
        """Returns the keys of each hit whose chunks are all readable, for an ended request, longest hit first."""
        caller = req_context.get_state(_Caller)
        hits = caller.hits_there if caller is not None else []
        return [keys for keys in hits if len(self.are_kept(keys, req_context)) == len(keys)]

    def holds(self, key: OffloadKey, req_context: ReqContext) -> bool:
        """Returns whether a request's zone owns a chunk with a key, even if the chunk is still being stored."""
        caller, chunk = req_context.get_state(_Caller), self._policy.get(key)
        return caller is not None and chunk is not None and self.tier.holds(caller.zone, chunk.chunk_id)

    def count_on(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        """Record that a request relies on those keys that are in the tier, even if another request loaded them."""
        caller = req_context.get_state(_Caller)
        if caller is not None:
            self._count_on(caller, keys)

    def may_bring_up(self, keys: Collection[OffloadKey], req_context: ReqContext) -> bool:
        """Returns whether these chunks may be loaded from a lower tier for a request. Each may be loaded only once."""
        caller = req_context.get_state(_Caller)
        return bool(keys) and caller is not None and caller.promoted.isdisjoint(keys)

    def make_room_for_hit(self, keys: Collection[OffloadKey], req_context: ReqContext) -> list[int]:
        """Make room for the chunks of a hit that are only in a lower tier, and keep its chunks that are in this tier.

        Returns:
            The new chunk ids of the missing chunks, in order. Empty if the chunks do not all fit, or if a missing key
            still belongs to a chunk that is about to be evicted.
        """
        caller = req_context.get_state(_Caller)
        assert caller is not None, "only a request of a zone promotes chunks"
        lacking = [key for key in keys if not self.holds(key, req_context)]
        caller.promoted.update(lacking)
        if any(self._policy.get(key) is not None for key in lacking):
            return []
        output = self._prepare_store(keys, caller, req_context)
        return self._chunk_ids(output.keys_to_store)

    def prepare_read(self, keys: Collection[OffloadKey], req_context: ReqContext) -> LoadStoreSpec:
        caller = req_context.get_state(_Caller)
        spec: LoadStoreSpec = self._prepare_load(keys, req_context, record_access=False)
        if caller is not None:
            self.tier.copy_down(caller.zone, self._chunk_ids(keys))
        return spec

    def complete_read(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        chunk_ids = self._chunk_ids(keys)
        super().complete_load(keys, req_context)
        self._forget(self.tier.copied_down(chunk_ids))

    def prepare_write(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput | None:
        """Make room for chunks that a request loads from a lower tier. Returns None if the chunks can't be loaded.

        Each chunk is loaded for a request at most once. A chunk that is evicted before use shows that the zone's
        requests need more chunks than fit, so loading the chunk again could repeat forever.
        """
        caller = req_context.get_state(_Caller)
        if caller is None or not caller.promoted.isdisjoint(keys):
            return None
        if len(caller.hits) + len(caller.awaited) >= self.tier.loadable(caller.zone):
            return None
        if any(self._policy.get(key) is not None for key in keys):
            return None
        output = self._prepare_store(keys, caller, req_context)
        if not output.keys_to_store:
            return None
        caller.promoted.update(output.keys_to_store)
        caller.awaited.extend(output.keys_to_store)
        return output

    def complete_write(self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True) -> None:
        self.complete_store(keys, req_context, success=success)

    def reset_cache(self) -> None:
        super().reset_cache()
        self.tier.reset()
        self._keys.clear()

    def _chunk_ids(self, keys: Iterable[OffloadKey]) -> list[int]:
        chunks: list[Any] = [self._policy.get(key) for key in keys]
        return [chunk.chunk_id for chunk in chunks if chunk is not None]

    def _forget(self, chunk_ids: Iterable[int]) -> list[OffloadKey]:
        """Remove evicted chunks and their keys. Returns the keys."""
        keys = [self._keys.pop(chunk_id) for chunk_id in chunk_ids]
        for key in keys:
            chunk = self._policy.get(key)
            assert chunk is not None
            assert chunk.ref_cnt == 0, "a chunk in transfer was evicted"
            self._policy.remove(key)
            self._free_chunk(chunk)
        self._num_evictable_cache_chunks -= len(keys)
        if keys and self.events is not None:
            self.events.append(OffloadingEvent(keys=keys, medium=self.medium, removed=True))
        return keys
