"""The engine of random history, as the arbiter sees it: requests that run, and a queue for each zone."""

from hack.harness.without_tiers import WithoutTiers
from tests.zones.history_tokens import BLOCK_TOKENS


class HistoryEngine(WithoutTiers):
    """An engine that answers for the requests of ``history`` and decides nothing.

    Args:
        history: the history that it belongs to.
        seats: the number of requests that run at once.
        headroom: blocks that must stay free or cached while others run.
        by_priority: whether requests with a lower client-given number go first.
        step_tokens: the most tokens that a step computes; None: prompts are computed whole.
        chunk_tokens: after each step, a prompt's computed tokens are a multiple of this, until all are computed.
        depth: steps in flight.
    """

    tokens_each = 1

    def __init__(self, history, seats, headroom, by_priority, step_tokens, chunk_tokens, depth):
        self.history = history
        self.seats = seats
        self.headroom = headroom
        self.by_priority = by_priority
        self.step_tokens = step_tokens
        self.chunk = chunk_tokens
        self.depth = depth
        self.is_open = True
        self.goes_on = True
        self.running = []
        self.queues = {}
        self.stood_aside = set()
        """Zones with a request that was sent back in this step: they are skipped until the next step."""
        self.sent_back = []
        """Requests that were preempted in this step."""
        self._arrived = []

    # Queries from the arbiter

    def by_seniority(self):
        return sorted(self.running, key=self._rank) if self.by_priority else list(self.running)

    @property
    def free_blocks(self):
        return self.history.free

    @property
    def free_seats(self):
        return self.seats - len(self.running) if self.is_open else 0

    def is_running(self, work):
        return work.running

    def front(self, zone):
        return self.queues[zone][0]

    def fronts(self, zone, count):
        return self.queues[zone][:count]

    def blocks_at_most(self, work):
        return work.needed + work.shared

    def blocks_to_admit(self, work):
        return work.needed

    def can_begin(self, work):
        return True

    def can_go_on(self, work):
        return True

    def blocks_to_continue(self, work):
        return self.blocks_for(work, self.tokens_left(work))

    def blocks_for(self, work, tokens):
        """Returns the blocks that a running request needs to compute `tokens` more tokens."""
        needed = -(-(work.computed + tokens) // BLOCK_TOKENS) if self.is_in_prompt(work) else work.needed
        return needed - len(work.blocks)

    def in_prompts(self):
        return [work for work in self.running if self.is_in_prompt(work)]

    def is_in_prompt(self, work):
        return work.computed < work.to_compute

    def tokens_left(self, work):
        left = work.to_compute - work.computed if work.running else BLOCK_TOKENS * work.needed
        return max(0, min(left, BLOCK_TOKENS * work.chunk))

    def tokens_within(self, work, blocks):
        return min(self.tokens_left(work), BLOCK_TOKENS * (len(work.blocks) + blocks) - work.computed)

    def chunk_tokens(self, work):
        return self.chunk

    def tokens_computed(self, work):
        return work.computed

    def preempt(self, work):
        self.running.remove(work)
        self.history.let_go(work, kept=len(work.blocks) - 1)
        work.running = False
        work.computed = work.to_compute = 0
        self.stood_aside.add(work.zone)
        self.sent_back.append(work)
        self._put(work, at_front=True)

    @property
    def waiting(self):
        return [work for queue in self.queues.values() for work in queue]

    def needs(self):
        """Before a step, only the needs of generated tokens are known, not those of a chunk of a prompt."""
        for work in self.running:
            if len(work.blocks) + 1 == work.needed:
                yield work, 1

    def warn(self, work, warning):
        self.history.check_unsatisfiable(work, warning)

    def fail(self, work, error):
        self.history.check_unsatisfiable(work, error)
        self.history.end(work)

    def return_evicted(self, evictions):
        self.history.return_evicted(evictions)

    # Events of requests

    def add(self, work):
        """Queues a request."""
        self._arrived.append(work)
        self._put(work)

    def seat(self, work):
        """Moves the next request of its zone from the queue to a seat."""
        assert self.queues[work.zone][0] is work
        self._leave_queue(work)
        work.running = True
        work.to_compute = BLOCK_TOKENS * work.needed
        self.running.append(work)

    def remove(self, work):
        """Ends a request."""
        if work in self._arrived:
            self._arrived.remove(work)
        if work in self.running:
            work.running = False
            self.running.remove(work)
        elif work in self.queues.get(work.zone, ()):
            self._leave_queue(work)

    def adopt(self, works):
        """Takes over requests that arrived before any zone was declared and now have a zone."""
        self._arrived += works
        self.running += [work for work in works if work.running]
        for work in works:
            if not work.running:
                self._put(work)

    def _put(self, work, *, at_front=False):
        queue = self.queues.setdefault(work.zone, [])
        front = queue[0] if queue else None
        queue.insert(0 if at_front else len(queue), work)
        if self.by_priority:
            queue.sort(key=self._rank)
        if queue[0] is not front:
            self.history.arbiter.waits(work.zone)

    def _leave_queue(self, work):
        queue = self.queues[work.zone]
        queue.remove(work)
        if queue:
            self.history.arbiter.waits(work.zone)
        else:
            del self.queues[work.zone]
            self.history.arbiter.waits_no_more(work.zone)

    def _rank(self, work):
        return work.priority, self._arrived.index(work)
