"""Invariants of LoRA adapter slots after each step of any life."""

from collections.abc import Iterable

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tests.engine.histories.reckoning import blocks_at_most, slots_to_admit
from tests.engine.histories.snapshot import Snapshot, waits_for_room_alone, zone_of

SLACK = 3
"""Steps: the one in which an adapter gives up its slot, and those until its zone may begin with another one."""


class AdapterSlots:
    """Checks an engine's adapter slots from outside, after each step.

    Args:
        scheduler: the engine's scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waited: dict[Zone, tuple[float, int]] = {}
        """Entitled zones that wait for a slot that others could give up: since when, and for how many steps."""
        self._overdue: dict[Zone, int] = {}
        """Steps since the zone's grace was over."""

    def check(self, before: Snapshot, after: Snapshot) -> None:
        if self._scheduler.lora_config is None or not self._scheduler.block_pool.ledger.zones:
            return
        # vLLM 0.33 counts the adapters of all running requests. vLLM 0.32 asserts its own count.
        assert len(_users(after.seated)) <= self._scheduler.lora_config.max_loras, "more adapters run than have slots"
        self._an_entitled_zone_gets_a_slot(before, after)

    def _an_entitled_zone_gets_a_slot(self, before: Snapshot, after: Snapshot) -> None:
        now = self._scheduler.tenancy.ledger.now
        waiting = {zone for zone in before.in_use if self._waits_for_a_slot(zone, before)}
        waiting &= {zone for zone in after.in_use if self._waits_for_a_slot(zone, after)}
        self._waited = {zone: self._waited.get(zone, (now, 0)) for zone in waiting}
        self._overdue = {zone: self._overdue.get(zone, 0) for zone in waiting}
        most = SLACK + int(self._scheduler.vllm_config.max_concurrent_batches)
        for zone, (since, steps) in self._waited.items():
            self._waited[zone] = since, steps + 1
            if steps >= TURN_STEPS and now - since >= zone.spec.lending.grace_seconds:
                self._overdue[zone] += 1
            assert self._overdue[zone] <= most, "an entitled zone does not get an adapter slot"

    def _waits_for_a_slot(self, zone: Zone, seen: Snapshot) -> bool:
        """Whether a zone is entitled to a slot that zones without entitlement use, and lacks nothing else."""
        if self._scheduler.pause_state != PauseState.UNPAUSED or not seen.own_seats.get(zone):
            return False
        request = self._next_of(zone)
        users = _users(seen.seated)
        if request is None or request.lora_request in users or len(users) < self._scheduler.lora_config.max_loras:
            return False
        loading = {each.lora_request for each in seen.loading}
        can_be_had = any(
            adapter not in loading and not any(seen.own_seats.get(user) for user in zones)
            for adapter, zones in users.items()
        )
        needed = seen.in_use[zone] + seen.growth_of(zone)
        needed += blocks_at_most(self._scheduler, slots_to_admit(self._scheduler, request))
        has_seat = len(seen.seated) < self._scheduler.max_num_running_reqs or seen.seats_of(zone) < seen.own_seats[zone]
        has_seat = has_seat and seen.seats_of(zone) < seen.most_seats[zone]
        return can_be_had and has_seat and needed <= seen.reserved[zone] and seen.has_room_for(zone)

    def _next_of(self, zone: Zone) -> Request | None:
        """The zone's next request, if it asks for an adapter and waits for nothing but room."""
        request = next((each for each in self._scheduler.waiting if zone_of(each) is zone), None)
        if request is None or request.lora_request is None or request.mm_features:
            return None
        return request if waits_for_room_alone(self._scheduler, request) else None


def _users(requests: Iterable[Request]) -> dict[object, set[Zone | None]]:
    """The adapters that requests use, each with its zones."""
    users: dict[object, set[Zone | None]] = {}
    for request in requests:
        if request.lora_request is not None:
            users.setdefault(request.lora_request, set()).add(zone_of(request))
    return users
