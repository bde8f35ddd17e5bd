"""An engine without a model, for the arbiter, with requests that need blocks and end after some time.

It leaves all decisions to the arbiter, whose interface is in ``tenantzone_runtime.zones.engine``.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hack.harness.without_tiers import WithoutTiers
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.zones.blocks.eviction import Evictions, make_room, trim_to_limit
from tenantzone_runtime.zones.blocks.states import blocks_evicted
from tenantzone_runtime.zones.config.configure import discard_if_gone
from tenantzone_runtime.zones.model.fair_queue import INPUT
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.arbiter import Arbiter
from tenantzone_runtime.zones.tenancy import Tenancy


@dataclass(slots=True, eq=False)
class Request:
    """A request that needs ``count`` blocks at its start, and ``peak`` blocks at its end."""

    zone: Zone
    count: int
    peak: int
    gives_up: float
    """Time at which the request is aborted if it is still waiting."""
    seconds: float
    """Time for which the request runs, in seconds."""
    ends: float = 0.0
    blocks: list[int] = field(default_factory=list)


class Engine(WithoutTiers):
    """An engine without a model.

    Args:
        capacity: the number of blocks.
        seats: the maximum number of running requests.
    """

    def __init__(self, capacity: int, seats: int) -> None:
        self.now = 0.0
        self.running: list[Request] = []
        self.tenancy = Tenancy(capacity, capacity, self.now)
        self.ledger = self.tenancy.ledger
        self.seats = seats
        self.arbiter = Arbiter[Request](self.tenancy, self)
        self._free = deque(range(capacity))
        self._waiting: dict[Zone, deque[Request]] = {}

    def apply(self, config: RuntimeConfig) -> None:
        """Enforce a config."""
        self.return_evicted(self.tenancy.apply(config, self.now))

    def submit(self, tenant: str, count: int, peak: int, *, patience: float, seconds: float) -> None:
        """Queue a request, or refuse it."""
        zone = self.tenancy.zone_for(tenant, self.now)
        if zone is None:
            self.tenancy.refused(tenant, "unknown_tenant")
        elif peak > min(zone.spec.quota.limit, self.ledger.totals.reachable(zone)):
            self.tenancy.refused(tenant, "too_long")
        else:
            self.tenancy.request_arrived(zone, self.now)
            self._wait(Request(zone, count, peak, self.now + patience, seconds), first=False)

    def step(self) -> None:
        """End all requests that are due, then run one step."""
        for request in [each for each in self.running if each.ends <= self.now]:
            self.running.remove(request)
            self._release(request)
            self._ended(request, "stop")
        for request in [each for each in itertools.chain(*self._waiting.values()) if each.gives_up <= self.now]:
            self._wait_no_more(request)
            self._ended(request, "abort")
        self.return_evicted(self.tenancy.upkeep(self.now, self.free_blocks))
        self.ledger.now = self.now
        self.arbiter.begin_step()
        for request in list(self.running):
            missing = self.blocks_to_continue(request)
            if missing and self.is_running(request) and self.arbiter.may_continue(request, missing):
                self._take(request, missing)
        while (admitted := self.arbiter.admit_next()) is not None:
            self._wait_no_more(admitted)
            self._take(admitted, admitted.count)
            admitted.zone.account.charge(INPUT * admitted.count)
            admitted.zone.counters.prompt_tokens += admitted.count
            admitted.ends = self.now + admitted.seconds
            self.running.append(admitted)
        self.arbiter.end_step()

    def _take(self, request: Request, count: int) -> None:
        self.return_evicted(make_room(self.ledger, request.zone, count, self.free_blocks))
        blocks = [self._free.popleft() for _ in range(count)]
        self.ledger.take(request.zone, blocks)
        request.blocks += blocks

    def _release(self, request: Request) -> None:
        """Release a request's blocks; all except the last stay cached."""
        zone, blocks, request.blocks = request.zone, request.blocks, []
        kept = [] if zone.leaving else blocks[:-1]
        dropped = blocks[len(kept) :]
        self.ledger.release(zone, kept, dropped)
        self._free += dropped
        self.return_evicted([(zone, trim_to_limit(self.ledger, zone))])

    def _ended(self, request: Request, outcome: str) -> None:
        request.zone.counters.request_ended("stop" if outcome == "stop" else "abort")
        self.tenancy.request_finished(request.zone, self.now)

    def _wait(self, request: Request, *, first: bool) -> None:
        queue = self._waiting.setdefault(request.zone, deque())
        if first:
            queue.appendleft(request)
        else:
            queue.append(request)
        if queue[0] is request:
            self.arbiter.waits(request.zone)

    def _wait_no_more(self, request: Request) -> None:
        queue = self._waiting[request.zone]
        queue.remove(request)
        if queue:
            self.arbiter.waits(request.zone)
        else:
            del self._waiting[request.zone]
            self.arbiter.waits_no_more(request.zone)

    # The arbiter's interface

    headroom = 0
    is_open = True
    goes_on = True
    step_tokens = None
    tokens_each = 1
    depth = 1

    def chunk_tokens(self, request: Request) -> int:
        return 1

    def by_seniority(self) -> Sequence[Request]:
        return self.running

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def free_seats(self) -> int:
        return self.seats - len(self.running)

    @property
    def waiting(self) -> Sequence[Request]:
        return [*itertools.chain(*self._waiting.values())]

    def needs(self) -> Iterable[tuple[Request, int]]:
        return [(request, missing) for request in self.running if (missing := self.blocks_to_continue(request))]

    def is_running(self, work: Request) -> bool:
        return work in self.running

    def front(self, zone: Zone) -> Request:
        return self._waiting[zone][0]

    def fronts(self, zone: Zone, count: int) -> Sequence[Request]:
        return list(itertools.islice(self._waiting[zone], count))

    def blocks_at_most(self, work: Request) -> int:
        return work.count

    def blocks_to_admit(self, work: Request) -> int:
        return work.count

    def can_begin(self, work: Request) -> bool:
        return True

    def can_go_on(self, work: Request) -> bool:
        return True

    def blocks_to_continue(self, work: Request) -> int:
        return min(1, work.peak - len(work.blocks))

    def in_prompts(self) -> Sequence[Request]:
        return ()

    def is_in_prompt(self, work: Request) -> bool:
        return False

    def tokens_left(self, work: Request) -> int:
        return 0

    def tokens_within(self, work: Request, blocks: int) -> int:
        return 0

    def tokens_computed(self, work: Request) -> int:
        return 0

    def preempt(self, work: Request) -> None:
        self.running.remove(work)
        self._release(work)
        self._wait(work, first=True)

    def warn(self, work: Request, warning: str) -> None:
        """Do nothing, because clients here give up without a warning."""

    def fail(self, work: Request, error: str) -> None:
        self._wait_no_more(work)
        self.tenancy.refused(work.zone.spec.tenant, "too_long")
        self._ended(work, "abort")

    def return_evicted(self, evictions: Evictions) -> None:
        for zone, blocks in evictions:
            self._free += blocks
            if blocks:
                blocks_evicted(self.ledger, zone)
            discard_if_gone(self.ledger, zone)
