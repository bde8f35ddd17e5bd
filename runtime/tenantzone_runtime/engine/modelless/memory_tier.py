"""A CPU memory tier below a scheduler without a model, implemented as a vLLM connector around the zone core's tier.

If a zone may store the blocks that a step computes, they are stored in the same step. Blocks that continue a prompt's
hit in the engine are loaded before the step that needs them. The caller of the scheduler decides how long a load takes.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds

_UPKEEP_SECONDS: Final = 0.1


class TierBelow(KVConnectorBase_V1):
    """The scheduler's side of a connector. It has no worker, because no KV cache exists.

    Args:
        config: the engine's zones. Each zone's share of the tier is as large as its share of the engine.
        blocks: the number of blocks of the tier.
        engine_blocks: the number of blocks of the engine.
        block_tokens: the number of tokens of a block.
        now: returns the time in seconds.
    """

    def __init__(
        self, config: RuntimeConfig, blocks: int, engine_blocks: int, block_tokens: int, now: Callable[[], float]
    ) -> None:
        zones = tuple(
            zone.model_copy(update={"tiers": (_share(zone.reserved, blocks, engine_blocks),)}) for zone in config.zones
        )
        # The bounds need not be lower, because all stores and loads of a step end in the same step.
        self._tier = Tier("cpu", blocks, 1, TransferBounds(stores=blocks, loads=blocks), now())
        self._tier.apply(config.model_copy(update={"zones": zones}), now())
        self._block_tokens = block_tokens
        self._now = now
        self._kept_house = now()
        self._chunk_of: dict[tuple[str, bytes], int] = {}
        self._key_of: dict[int, tuple[str, bytes]] = {}
        self._free = list(range(blocks))
        self._requests: dict[str, Request] = {}
        self._stored: dict[str, int] = {}
        """Number of blocks that each request has tried to store, by request id."""
        self._refused: set[str] = set()
        """Ids of requests for which the zone's admission terms refused a chunk."""
        self._matched: dict[str, list[int]] = {}
        """Chunks that were found for each request and that it has not loaded yet, by request id."""
        self._loaded_tokens = 0

    def take_loaded_tokens(self) -> int:
        """Returns the number of tokens loaded since the last call."""
        loaded, self._loaded_tokens = self._loaded_tokens, 0
        return loaded

    # vLLM's connector interface

    def on_new_request(self, request: Request) -> None:
        zone = self._zone(request)
        if zone is not None:
            self._requests[request.request_id] = request
            self._stored[request.request_id] = 0
            self._tier.request_arrived(zone, self._now())

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        found = self._matched[request.request_id] = self._found(request, num_computed_tokens)
        return len(found) * self._block_tokens, False

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        chunks = self._matched.pop(request.request_id, [])[: num_external_tokens // self._block_tokens]
        zone = self._zone(request)
        if not chunks or zone is None:
            return
        self._tier.load(zone, chunks)
        self._give_up(self._tier.loaded(chunks))
        self._loaded_tokens += num_external_tokens

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        if self._now() - self._kept_house >= _UPKEEP_SECONDS:
            self._kept_house = self._now()
            self._give_up(self._tier.upkeep(self._now()))
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            request = self._requests.get(name)
            if request is not None:
                self._store(request, (request.num_computed_tokens + tokens) // self._block_tokens)
        return KVConnectorMetadata()

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, None]:
        self._matched.pop(request.request_id, None)
        if self._requests.pop(request.request_id, None) is not None:
            del self._stored[request.request_id]
            self._refused.discard(request.request_id)
            zone = self._zone(request)
            if zone is not None:
                self._tier.request_finished(zone, self._now())
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def wait_for_save(self) -> None:
        raise NotImplementedError

    # The tier

    def _zone(self, request: Request) -> Zone | None:
        return self._tier.zone_for(request.cache_salt, self._now())

    def _found(self, request: Request, begin: int) -> list[int]:
        """Returns chunks that continue a prompt, but not up to its last token, which the model must compute."""
        zone, size = self._zone(request), self._block_tokens
        if zone is None:
            return []
        chunks: list[int] = []
        last = min((request.num_tokens - 1) // size, begin // size + self._tier.loadable(zone))
        for block_hash in request.block_hashes[begin // size : last]:
            chunk = self._chunk_of.get((zone.spec.tenant, block_hash))
            if chunk is None or not self._tier.has_stored(zone, chunk):
                break
            chunks.append(chunk)
        return chunks

    def _store(self, request: Request, full: int) -> None:
        zone, begin = self._zone(request), self._stored[request.request_id]
        if zone is None or full <= begin:
            return
        self._stored[request.request_id] = full
        tenant = zone.spec.tenant
        hashes = request.block_hashes[:full]
        known = [self._chunk_of[tenant, each] for each in hashes if (tenant, each) in self._chunk_of]
        new = [each for each in hashes[begin:] if (tenant, each) not in self._chunk_of]
        admitted = self._tier.admission.admitted(zone, new, self._now(), is_cut=request.request_id in self._refused)
        if admitted < len(new):
            self._refused.add(request.request_id)
            new = new[:admitted]
        self._tier.use(zone, known[::-1])
        granted, given_up = self._tier.make_room(zone, len(new), known)
        self._give_up(given_up)
        chunks = [self._free.pop() for _ in range(granted)]
        self._tier.store(zone, chunks)
        for chunk, block_hash in zip(chunks, new, strict=False):
            self._chunk_of[tenant, block_hash] = chunk
            self._key_of[chunk] = tenant, block_hash
        # In reverse order, so that the end of the prompt is evicted first.
        self._give_up(self._tier.stored(chunks[::-1]))

    def _give_up(self, chunks: Iterable[int]) -> None:
        for chunk in chunks:
            del self._chunk_of[self._key_of.pop(chunk)]
            self._free.append(chunk)


def put_below(scheduler: Scheduler, tier: TierBelow) -> None:
    """Put a tier below a scheduler that has not got any requests yet."""
    scheduler.connector = tier


def _share(reserved: int | str, blocks: int, engine_blocks: int) -> TierShare:
    part = reserved if isinstance(reserved, str) else reserved * blocks // max(1, engine_blocks)
    return TierShare(tier="cpu", reserved=part)  # a block counts as one byte
