"""Invariants of the room in the encoder after each step of any life."""

from collections.abc import Iterable, Iterator

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tenantzone_runtime.zones.engine import Encoding
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tests.engine.histories.reckoning import blocks_at_most, slots_at_most
from tests.engine.histories.snapshot import Snapshot, zone_of

SLACK = 3
"""Steps: the one in which borrowers make room, and those until the zone may use it."""


class EncoderRoom:
    """Checks the room in an engine's encoder from outside, before and after each step.

    Args:
        scheduler: the engine's scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._standing: dict[Zone, tuple[Request, Encoding]] = {}
        """Each entitled zone's first request that lacks nothing but an encoding before the step, and that encoding."""
        self._ran: set[Request] = set()
        """The requests that ran before the step."""
        self._overdue: dict[Zone, tuple[Request, Encoding, float, int]] = {}
        """Those that borrowers could make room for: since when, and for how many steps."""

    def before(self, seen: Snapshot) -> None:
        """Notes which requests need room."""
        self._standing, self._ran = {}, set(seen.running)
        for request in [*seen.running, *self._next_in(seen)]:
            zone = zone_of(request)
            if zone is None or not seen.own_seats.get(zone) or self._scheduler.pause_state == PauseState.PAUSED_ALL:
                continue
            needed = self._scheduler._engine.next_encoding(request)
            if needed is not None:
                self._standing.setdefault(zone, (request, needed))

    def _next_in(self, seen: Snapshot) -> Iterator[Request]:
        """The next request of each zone for which there are blocks and a seat, whatever others ask for."""
        if self._scheduler.pause_state != PauseState.UNPAUSED:
            return
        if len(seen.seated) >= self._scheduler.max_num_running_reqs:
            return
        queue = self._scheduler.waiting
        for zone in queue._queues.keys() & seen.own_seats.keys():
            if queue._deferred.reason(zone) is not None:
                # Another one may come before it.
                continue
            request = queue.front(zone)
            count = blocks_at_most(self._scheduler, slots_at_most(self._scheduler, request))
            fits = count + sum(seen.growth.values()) <= seen.free and seen.seats_of(zone) < seen.most_seats[zone]
            if request in seen.waiting and fits and count + seen.growth_of(zone) <= seen.available[zone]:
                yield request

    def after(self, seen: Snapshot, output: SchedulerOutput) -> None:
        """Checks that no other zone has taken the room of an entitled zone."""
        room = self._scheduler._engine.encoder_room
        requests = self._scheduler.requests
        encoded = output.scheduled_encoder_inputs
        makers = {zone_of(requests[name]) for name in encoded}
        made = sum(requests[name].get_num_encoder_embeds(each) for name, inputs in encoded.items() for each in inputs)
        borrow = any(zone in seen.own_seats and not seen.own_seats[zone] for zone in makers)
        lacking = {}
        for zone, (request, needed) in self._standing.items():
            is_served = request.request_id in output.num_scheduled_tokens or zone in makers
            was_preempted = request in self._ran and request not in seen.running
            if is_served or was_preempted or self._scheduler._engine.next_encoding(request) is None:
                continue
            has_room = needed.cache <= room.cache and needed.compute <= room.compute - made
            assert has_room or not borrow, "a borrower takes room in the encoder that an entitled zone waits for"
            if needed.cache > room.cache:
                lacking[zone] = request, needed
        self._borrowers_make_room(lacking, seen)

    def _borrowers_make_room(self, lacking: dict[Zone, tuple[Request, Encoding]], seen: Snapshot) -> None:
        now = self._scheduler.tenancy.ledger.now
        borrowers = [each for each in seen.running if zone_of(each) in seen.own_seats]
        borrowers = [each for each in borrowers if not seen.own_seats[zone_of(each)]]
        free = self._scheduler._engine.encoder_room.cache + self._freed(borrowers)
        wanted = sum(needed.cache for _, needed in lacking.values())
        before, self._overdue = self._overdue, {}
        for zone, (request, needed) in lacking.items() if wanted <= free else ():
            _, _, since, steps = before.get(zone, (request, needed, now, 0))
            if before.get(zone, (request, needed))[:2] != (request, needed):
                since, steps = now, 0
            self._overdue[zone] = request, needed, since, steps + 1
            is_due = now - since > zone.spec.lending.grace_seconds
            assert not is_due or steps <= TURN_STEPS + SLACK, "borrowers make no room in the encoder after the grace"

    def _freed(self, requests: Iterable[Request]) -> int:
        cache, names = self._scheduler.encoder_cache_manager, {each.request_id for each in requests}
        return sum(cache.num_embeds_by_hash[name] for name, users in cache.cached.items() if users and users <= names)
