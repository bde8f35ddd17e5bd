"""A small engine for the arbiter: requests take all their blocks at once, and ask for more when the test says so."""

from dataclasses import dataclass, field

from hack.harness.without_tiers import WithoutTiers
from tenantzone_runtime.zones.blocks.eviction import make_room
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.arbiter import Arbiter


@dataclass(eq=False)
class Work:
    """A request of a zone; ``count``: the blocks that it needs to be admitted, or to go on if it runs."""

    zone: Zone
    count: int
    peak: int = 0
    blocks: list[int] = field(default_factory=list)
    shared: int = 0
    """Blocks of its prefix that others of its zone already use; only a lookup finds them."""
    waits_for_else: bool = False
    """Whether it can't be admitted yet for a reason other than blocks."""
    has_no_room: bool = False
    """Whether the encoder has no room for the next image of its prompt, so that nothing of it can be computed."""
    stands_still: bool = False
    """Whether nothing of it can be computed for a reason that only the step shows."""
    tokens: int = 0
    """Tokens of its prompt; 0: it generates as soon as it runs."""
    computed: int = 0
    """Computed tokens: of its prompt, and generated ones."""
    lora: int | None = None
    """The LoRA adapter that it asks for."""
    rank: int = 0
    """The client's priority; the lower one goes first."""


class SmallEngine(WithoutTiers):
    """An engine around a core.

    Args:
        core: the core of the zones.
        seats: the number of requests that run at once.
        headroom: blocks that must stay free or cached while others run.
        chunk_tokens: after each step, a prompt's computed tokens are a multiple of this, until all are computed.
    """

    def __init__(self, core, *, seats=100, headroom=0, step_tokens=None, chunk_tokens=1, depth=1):
        self.core = core
        self.seats = seats
        self.headroom = headroom
        self.step_tokens = step_tokens
        self.chunk = chunk_tokens
        self.tokens_each = 1
        self.depth = depth
        self.is_open = True
        self.goes_on = True
        self.running = []
        self.queues = {}
        self.preempted = []
        self.failed = []
        self.warned = []
        self.warnings = []
        self.predicted = []
        """Running requests whose next blocks are known before the step."""
        self.computed = {}
        """Tokens that the last step computed, by request; skipped requests have no entry."""
        self.looked_at = []
        self.looked_up = []
        """Waiting requests whose prefix was looked up."""
        self.arbiter = Arbiter(core.tenancy, self)

    def by_seniority(self):
        return sorted(self.running, key=lambda work: work.rank)

    @property
    def free_blocks(self):
        return self.core.free

    @property
    def free_seats(self):
        return self.seats - len(self.running) if self.is_open else 0

    @property
    def waiting(self):
        return [work for queue in self.queues.values() for work in queue]

    def needs(self):
        return [(work, work.count) for work in self.predicted]

    def is_running(self, work):
        return work in self.running

    def front(self, zone):
        return self.queues[zone][0]

    def fronts(self, zone, count):
        return self.queues[zone][:count]

    def blocks_at_most(self, work):
        self.looked_at.append(work)
        return 0 if work.waits_for_else else work.count + work.shared

    def blocks_to_admit(self, work):
        self.looked_up.append(work)
        return work.count

    def adapter(self, work):
        return work.lora

    def can_begin(self, work):
        return not work.has_no_room

    def can_go_on(self, work):
        return not work.has_no_room

    def blocks_to_continue(self, work):
        return work.count

    def in_prompts(self):
        return [work for work in self.running if self.is_in_prompt(work)]

    def is_in_prompt(self, work):
        return work.computed < work.tokens

    def tokens_left(self, work):
        return work.tokens - work.computed

    def tokens_within(self, work, blocks):
        return self.tokens_left(work) if blocks >= work.count else 0

    def tokens_computed(self, work):
        return work.computed

    def preempt(self, work):
        self.running.remove(work)
        self.preempted.append(work)
        work.count += len(work.blocks)
        self.core.ledger.release(work.zone, work.blocks, [])
        work.blocks = []
        self._put_first(work)

    def warn(self, work, warning):
        self.warned.append(work)
        self.warnings.append(warning)

    def fail(self, work, error):
        self.failed.append((work, error))
        self.leave(work)

    def return_evicted(self, evictions):
        self.core.settle_evictions(evictions)

    # Actions of a test

    def wait(self, zone, count, peak=0, **traits):
        """Queues a request."""
        work = Work(zone, count, peak, **traits)
        self.core.tenancy.request_arrived(zone, self.core.now)
        self.queues.setdefault(zone, []).append(work)
        if len(self.queues[zone]) == 1:
            self.arbiter.waits(zone)
        return work

    def run(self, zone, count, *, asks=0, peak=0, **traits):
        """Adds a running request that uses `count` blocks and asks for `asks` more."""
        self.core.tenancy.request_arrived(zone, self.core.now)
        work = Work(zone, asks, peak, self.core.take(zone, count), **traits)
        self.running.append(work)
        return work

    def end(self, work, *, kept=False):
        """Ends a running request."""
        self.running.remove(work)
        self.core.ledger.release(work.zone, *((work.blocks, []) if kept else ([], work.blocks)))
        self.core.tenancy.request_finished(work.zone, self.core.now)

    def leave(self, work):
        """Removes a waiting request from its queue."""
        queue = self.queues[work.zone]
        queue.remove(work)
        if queue:
            self.arbiter.waits(work.zone)
        else:
            del self.queues[work.zone]
            self.arbiter.waits_no_more(work.zone)

    def step(self):
        """Makes a step. Returns the running requests that lost their turn, and the admitted ones."""
        self.arbiter.begin_step()
        withheld = [work for work in list(self.running) if work.count and not self._go_on(work)]
        self.computed = {}
        budget = self.step_tokens
        for work in self.running:
            budget = self._compute(work, budget)
        admitted, passed_over = [], []
        while budget != 0 and (work := self.arbiter.admit_next()) is not None:
            if budget is not None and work.tokens and not self._fitting(work, budget):
                break
            is_passed_over = work.waits_for_else or not self.arbiter.may_have_slot(work)
            self.leave(work)
            if is_passed_over:
                passed_over.append(work)
                continue
            budget = self._compute(work, budget)
            self.running.append(work)
            self._take(work)
            admitted.append(work)
        for work in reversed(passed_over):
            self._put_first(work)
        self.arbiter.end_step()
        return withheld, admitted

    def _compute(self, work, budget):
        """Computes what the step can compute of a request. Returns the remaining tokens of the step."""
        if budget is None:
            return None
        if work.has_no_room or work.stands_still:
            return budget
        wanted = self._fitting(work, budget) if self.is_in_prompt(work) else min(budget, 1)
        count = self.arbiter.tokens_for(work, wanted, lambda most: self._fitting(work, most)) if wanted else 0
        assert 0 <= count <= wanted
        assert count or work in self.running, "the next request gets some"
        if count:
            self.computed[work] = count
            work.computed += count
        return budget - count

    def chunk_tokens(self, work):
        return self.chunk

    def _fitting(self, work, most):
        """Returns how many of at most `most` tokens of a prompt can be computed."""
        if most >= self.tokens_left(work):
            return self.tokens_left(work)
        return (work.computed + most) // self.chunk * self.chunk - work.computed

    def _put_first(self, work):
        self.queues.setdefault(work.zone, []).insert(0, work)
        self.arbiter.waits(work.zone)

    def _go_on(self, work):
        if not self.arbiter.may_continue(work, work.count):
            return False
        self._take(work)
        return True

    def _take(self, work):
        self.return_evicted(make_room(self.core.ledger, work.zone, work.count, self.core.free))
        work.blocks += self.core.take(work.zone, work.count)
        work.count = 0


def preemptions(core):
    """The trail's preemptions: the zone, the reason, and the zone that benefits."""
    return [(note.zone, note.reason, note.beneficiary) for note in core.events("preempted")]
