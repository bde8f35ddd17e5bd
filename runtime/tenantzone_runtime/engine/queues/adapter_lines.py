"""Waiting requests that are kept out of the queues because their LoRA adapters have no slot.

If several requests of a zone wait for an adapter without a slot, only the first request stays in the zone's queue, to
show the arbiter that the zone waits for the slot. The other requests are kept here, so that the cost of a step does not
depend on their number. A kept request returns to its place in the queue when the requests before it have left the
queue, or when its adapter may be used.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.requests import user_of
from tenantzone_runtime.engine.queues.placed_queue import PlacedQueue
from tenantzone_runtime.zones.model.users import NO_USER
from tenantzone_runtime.zones.model.zone import Zone

QUEUED: Final = 64
"""Target number of requests for one adapter in a zone's queue, before a step that may use the adapter."""
MOST_AT_ONCE: Final = 256
"""Maximum number of kept requests that return to the zones' queues in one step."""


class _Queued:
    """The requests of one zone for one adapter that are in the zone's queue.

    Under the priority policy, the requests are sorted. Thousands may arrive while the adapter may be used, and
    comparing each new request with all others would take quadratic time.

    Args:
        policy: vLLM's scheduling policy.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._requests: set[Request] = set()
        self._by_priority = PlacedQueue(policy) if policy is SchedulingPolicy.PRIORITY else None

    def add(self, request: Request) -> None:
        if request in self._requests:
            return
        self._requests.add(request)
        if self._by_priority is not None:
            self._by_priority.put_back(request)

    def discard(self, request: Request) -> None:
        if request not in self._requests:
            return
        self._requests.remove(request)
        if self._by_priority is not None:
            self._by_priority.remove_request(request)

    def all_come_after(self, request: Request) -> bool:
        """Returns whether a request outside the queue precedes all queued requests by priority. False under FCFS."""
        # vLLM's `Request` compares by priority and then by arrival.
        return self._by_priority is not None and bool(request < self._by_priority.peek_request())

    def __len__(self) -> int:
        return len(self._requests)


@dataclass(slots=True)
class _Line:
    """The requests of one zone for one adapter."""

    queued: _Queued
    """Requests that are in the zone's queue."""
    kept: OrderedDict[str, PlacedQueue] = field(default_factory=OrderedDict)
    """Requests outside the queue, by user if the zone is fair among users. Users take turns."""

    def first_kept(self) -> Request:
        return next(iter(self.kept.values())).peek_request()

    def pop(self) -> Request:
        """Remove and return the first kept request of the user whose turn it is."""
        user, requests = next(iter(self.kept.items()))
        request = requests.pop_request()
        if requests:
            self.kept.move_to_end(user)
        else:
            del self.kept[user]
        return request


class AdapterLines:
    """The waiting requests that use LoRA adapters.

    Args:
        policy: vLLM's scheduling policy, which orders requests of one zone for one adapter.
        adapter_of: returns the id of a request's adapter, or None if it uses the base model.
        may_have: returns whether a request may use its adapter's slot, as the arbiter decided before the last step.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        adapter_of: Callable[[Request], int | None],
        may_have: Callable[[Request], bool],
    ) -> None:
        self._policy = policy
        self._adapter_of = adapter_of
        self._may_have = may_have
        self._lines: dict[Zone, dict[int, _Line]] = {}
        self._kept = 0
        self._left_in_step = MOST_AT_ONCE
        """Number of kept requests that may still return to queues before the next step."""

    def keep(self, request: Request, zone: Zone) -> bool:
        """Keep a request out of its zone's queue if a queued request precedes it. Otherwise, record it as queued.

        Returns:
            Whether the request is kept out of the queue.
        """
        adapter = self._adapter_of(request)
        if adapter is None:
            return False
        line = self._line(zone, adapter)
        if self._comes_first(request, line) or (not line.kept and self._may_have(request)):
            line.queued.add(request)
            return False
        self._add(request, zone, line)
        return True

    def _line(self, zone: Zone, adapter: int) -> _Line:
        """Returns the line of a zone for an adapter. Creates a missing line."""
        lines = self._lines.setdefault(zone, {})
        if adapter not in lines:
            lines[adapter] = _Line(_Queued(self._policy))
        return lines[adapter]

    def _comes_first(self, request: Request, line: _Line) -> bool:
        is_preempted = request.status == RequestStatus.PREEMPTED
        return is_preempted or not line.queued or line.queued.all_come_after(request)

    def _add(self, request: Request, zone: Zone, line: _Line) -> None:
        # Under the priority policy, priorities order all users' requests, so one queue contains them all.
        tells_apart = zone.users is not None and self._policy is SchedulingPolicy.FCFS
        user = user_of(request) if tells_apart else NO_USER
        line.kept.setdefault(user, PlacedQueue(self._policy)).put_back(request)
        self._kept += 1

    def queued(self, request: Request, zone: Zone) -> None:
        """Record that a request was put into its zone's queue."""
        adapter = self._adapter_of(request)
        if adapter is not None:
            self._line(zone, adapter).queued.add(request)

    def popped(self, request: Request, zone: Zone) -> list[Request]:
        """Record that a request has left its zone's queue in a step.

        Returns:
            Requests to put into the queue instead. Empty if the request was skipped because its adapter has no slot.
        """
        line = self._leave(request, zone)
        taken = self._take(line, 1) if line is not None and line.kept and self._may_have(request) else []
        self._tidy_up(zone)
        return taken

    def removed(self, requests: Iterable[Request], zone: Zone) -> list[Request]:
        """Record that waiting requests have ended.

        Returns:
            Requests to put into the zone's queue in place of ended requests.
        """
        gone = set(requests)
        for request in gone:
            self._leave(request, zone)
        lines = self._lines.get(zone, {})
        adapters = {adapter for request in gone if (adapter := self._adapter_of(request)) is not None}
        for adapter in adapters & lines.keys():
            self._remove(gone, lines[adapter])
        return self.missing_in(zone)

    def _remove(self, requests: set[Request], line: _Line) -> None:
        # `_add` uses the key `NO_USER` for all requests of a zone without fairness among users.
        for user in {NO_USER, *map(user_of, requests)} & line.kept.keys():
            kept = line.kept[user]
            before = len(kept)
            kept.remove_requests(requests)
            self._kept -= before - len(kept)
            if not kept:
                del line.kept[user]

    def _leave(self, request: Request, zone: Zone) -> _Line | None:
        adapter = self._adapter_of(request)
        line = None if adapter is None else self._lines.get(zone, {}).get(adapter)
        if line is not None:
            line.queued.discard(request)
        return line

    def missing_in(self, zone: Zone) -> list[Request]:
        """Remove and return kept requests that must be queued, to show the arbiter for which adapters the zone waits.

        For each adapter, this is the first kept request, if it precedes all queued requests or if no request is queued.
        """
        missing = self._missing(self._lines.get(zone, {}).values())
        self._tidy_up(zone)
        return missing

    def _missing(self, lines: Iterable[_Line]) -> list[Request]:
        return [
            request
            for line in lines
            if line.kept and self._comes_first(line.first_kept(), line)
            for request in self._take(line, 1, is_bounded=False)
        ]

    def _tidy_up(self, zone: Zone) -> None:
        lines = self._lines.get(zone, {})
        for adapter in [adapter for adapter, line in lines.items() if not line.queued and not line.kept]:
            del lines[adapter]
        if not lines:
            self._lines.pop(zone, None)

    def take_admissible(self) -> list[Request]:
        """Remove and return requests whose adapters may be used, so that each queue has enough requests for a step.

        At most ``MOST_AT_ONCE`` requests return. They are divided equally among the zones with such requests, and then
        among each zone's adapters. In addition, this returns the requests of ``missing_in`` for each zone.
        """
        self._left_in_step = MOST_AT_ONCE
        taken = self._missing(line for lines in self._lines.values() for line in lines.values())
        of_zones = (
            [line for line in lines.values() if line.kept and self._may_have(line.first_kept())]
            for lines in self._lines.values()
        )
        admissible = [lines for lines in of_zones if lines]
        for zones, lines in zip(range(len(admissible), 0, -1), admissible, strict=True):
            of_zone = -(-self._left_in_step // zones)
            for adapters, line in zip(range(len(lines), 0, -1), lines, strict=True):
                of_line = self._take(line, min(QUEUED - len(line.queued), -(-of_zone // adapters)))
                of_zone -= len(of_line)
                taken += of_line
        return taken

    def _take(self, line: _Line, count: int, *, is_bounded: bool = True) -> list[Request]:
        taken: list[Request] = []
        while line.kept and len(taken) < count and (self._left_in_step or not is_bounded):
            taken.append(line.pop())
            self._left_in_step = max(0, self._left_in_step - 1)
        for request in taken:
            line.queued.add(request)
        self._kept -= len(taken)
        return taken

    def order_anew(self, zone: Zone) -> None:
        """Reorder a zone's kept requests, because a new spec may have turned fairness among users on or off."""
        for line in self._lines.get(zone, {}).values():
            requests = [request for kept in line.kept.values() for request in kept]
            line.kept.clear()
            self._kept -= len(requests)
            for request in requests:
                self._add(request, zone, line)

    def __len__(self) -> int:
        """Returns the number of requests that are kept out of queues."""
        return self._kept

    def __iter__(self) -> Iterator[Request]:
        for lines in self._lines.values():
            for line in lines.values():
                for kept in line.kept.values():
                    yield from kept
