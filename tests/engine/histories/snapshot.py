"""The state of an engine that is visible from outside, before and after a step."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from hack.harness.scheduler import Driver
from tenantzone_runtime.zones.model.zone import Zone
from tests.engine.histories.reckoning import growth


def zone_of(request: Request) -> Zone | None:
    return getattr(request, "zone", None)


@dataclass
class Snapshot:
    """An engine at one moment."""

    running: list[Request]
    loading: list[Request]
    """Requests that have a seat and blocks, and begin to run when a copy from a tier has ended."""
    waiting: list[Request]
    """Requests that could be admitted if there were room; not those that wait for a grammar, a tier, an adapter's slot,
    or output from before a preemption."""
    joining: list[Request]
    """Requests that could be admitted with adapters that have slots, unless these are closed to further requests."""
    used: dict[Request, set[int]]
    """Ids of the blocks that each request uses."""
    growth: dict[Request, int]
    """Blocks that each running request may ask for in the next step, at most."""
    has_tokens_to_compute: dict[Request, bool]
    in_use: dict[Zone, int]
    reserved: dict[Zone, int]
    limits: dict[Zone, int]
    available: dict[Zone, int]
    """Blocks that each zone may take."""
    in_grace: set[Zone]
    """Zones that owe blocks which they may still use, unless another zone keeps blocks for itself."""
    free: int
    """Blocks that no zone holds."""
    own_seats: dict[Zone, int]
    """Requests of each zone that may run whatever others do."""
    most_seats: dict[Zone, int]
    """Requests of each zone that may run at most."""

    @property
    def seated(self) -> list[Request]:
        return [*self.running, *self.loading]

    def seats_of(self, zone: Zone) -> int:
        return sum(zone_of(request) is zone for request in self.seated)

    def growth_of(self, zone: Zone) -> int:
        return sum(self.growth[request] for request in self.running if zone_of(request) is zone)

    def has_room_for(self, zone: Zone) -> bool:
        """Whether all running requests of the zone can have what they ask for, whatever others do."""
        return sum(self.growth.values()) <= self.free and self.growth_of(zone) <= self.available[zone]

    def has_but_a_grace(self, zone: Zone) -> bool:
        """Whether only a loan in its grace could keep the zone's running requests from what they ask for."""
        within_limit = self.in_use[zone] + self.growth_of(zone) <= self.limits[zone]
        return zone in self.in_grace and within_limit and sum(self.growth.values()) <= self.free


def take_snapshot(driver: Driver) -> Snapshot:
    scheduler = driver.scheduler
    pool, manager = scheduler.block_pool, scheduler.kv_cache_manager
    zones = list(pool.ledger.zones.values())
    running = list(scheduler.running)
    tables = {
        request: list(chain.from_iterable(manager.get_blocks(name).blocks))
        for name, request in scheduler.requests.items()
    }
    return Snapshot(
        running=running,
        loading=list(scheduler.kv_holding_waiting),
        waiting=[request for request in scheduler.requests.values() if could_be_admitted(scheduler, request)],
        joining=[request for request in scheduler.requests.values() if _could_join(scheduler, request)],
        used={request: {each.block_id for each in table if not each.is_null} for request, table in tables.items()},
        growth={request: _growth(driver, request) for request in running},
        has_tokens_to_compute={request: _tokens_to_compute(driver, request) > 0 for request in running},
        in_use={zone: zone.in_use for zone in zones},
        reserved={zone: zone.spec.quota.reserved for zone in zones},
        limits={zone: zone.spec.quota.limit for zone in zones},
        available={zone: pool.available_to(zone) for zone in zones},
        in_grace={
            zone
            for zone in zones
            if zone.overdue
            and zone not in scheduler.tenancy.past_grace()
            and not any(_keeps_from(other, zone) for other in zones if other is not zone)
        },
        free=pool.free_block_queue.num_free_blocks,
        own_seats={zone: _own_seats(zone, zones, scheduler.max_num_running_reqs, pool.capacity) for zone in zones},
        most_seats={
            zone: scheduler.max_num_running_reqs if zone.spec.seats.limit is None else zone.spec.seats.limit
            for zone in zones
        },
    )


def _own_seats(zone: Zone, zones: Iterable[Zone], seats: int, capacity: int) -> int:
    """The seats that the zone reserves by name, or the share of the remaining seats that comes with its blocks."""
    if zone.spec.seats.reserved is not None:
        return zone.spec.seats.reserved
    share = zone.spec.quota.reserved * (seats - sum(each.spec.seats.reserved or 0 for each in zones)) // capacity
    return share if zone.spec.seats.limit is None else min(share, zone.spec.seats.limit)


def _keeps_from(zone: Zone, other: Zone) -> bool:
    """Whether a zone keeps blocks for itself, so that the other one may not take them."""
    return zone.locked > 0 or (zone.withheld > 0 and zone.spec.priority > other.spec.priority)


def could_be_admitted(scheduler: Scheduler, request: Request) -> bool:
    """Whether a request waits for blocks and a seat only; a request that waits for an adapter slot does not."""
    return _has_place_for_adapter(scheduler, request) and waits_for_room_alone(scheduler, request)


def waits_for_room_alone(scheduler: Scheduler, request: Request) -> bool:
    """Whether a request waits for blocks, a seat or an adapter slot, and for nothing else."""
    if request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
        # The status may be stale once the grammar is there; vLLM updates it when it looks at the request.
        grammar = request.structured_output_request.grammar
        return grammar is not None and not isinstance(grammar, Exception)
    if request.status not in (RequestStatus.WAITING, RequestStatus.PREEMPTED):
        return False
    if request in scheduler.kv_holding_waiting or scheduler.tiers.is_looking_up(request):
        return False
    return not request.num_stale_output_tokens or request.drop_stale_output


def _has_place_for_adapter(scheduler: Scheduler, request: Request) -> bool:
    if request.lora_request is None:
        return True
    # Where all slots are taken, an adapter that has one may be closed to further requests.
    return len(_used_adapters(scheduler)) < scheduler.lora_config.max_loras


def _could_join(scheduler: Scheduler, request: Request) -> bool:
    """Whether a request waits only for room, and for an adapter that others use while no slot is free."""
    if _has_place_for_adapter(scheduler, request) or request.lora_request not in _used_adapters(scheduler):
        return False
    return waits_for_room_alone(scheduler, request)


def _used_adapters(scheduler: Scheduler) -> set[LoRARequest]:
    return {each.lora_request for each in chain(scheduler.running, scheduler.kv_holding_waiting)} - {None}


def _tokens_to_compute(driver: Driver, request: Request) -> int:
    """Tokens that vLLM would compute for a running request in an unbounded step."""
    return _fitting(driver, request, _tokens_left(driver, request))


def _tokens_left(driver: Driver, request: Request) -> int:
    """The same, wherever states are kept."""
    if request.next_decode_eligible_step > driver.scheduler.current_step + 1:
        # Its last generated token is still in the stages of a pipeline.
        return 0
    placeholders = request.num_output_placeholders
    end = request.num_prompt_tokens + request.max_tokens
    if placeholders > 0 and request.num_computed_tokens + 2 - placeholders >= end:
        return 0
    left = request.num_tokens_with_spec + placeholders - request.num_computed_tokens
    return min(left, driver.scheduler.max_model_len - request.num_computed_tokens - 1)


def _growth(driver: Driver, request: Request) -> int:
    tokens = min(_tokens_left(driver, request), driver.scheduler.max_num_scheduled_tokens)
    threshold = driver.scheduler.scheduler_config.long_prefill_token_threshold
    if threshold and len(driver.scheduler.requests) > 1:
        tokens = min(tokens, threshold)
    return growth(driver.scheduler, request, _fitting(driver, request, tokens))


def _fitting(driver: Driver, request: Request, tokens: int) -> int:
    """How many of at most `tokens` tokens vLLM computes, where it keeps states at the ends of blocks."""
    scheduler = driver.scheduler
    if not scheduler.need_mamba_block_aligned_split or tokens <= 0:
        return tokens
    fitting: int = scheduler._mamba_block_aligned_split(request, tokens)
    return fitting
