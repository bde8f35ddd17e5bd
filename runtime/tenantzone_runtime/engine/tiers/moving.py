"""Moves prompts of a zone step by step, either from an engine to shared storages or from storages to CPU memory.

A generator implements each direction. Each step of the engine resumes the generator once. The generator then begins
copies, and produces the jobs that copy chunks out of the engine's blocks after the step.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from tenantzone_contract.cache.migration import MigrationError, State, Work
from tenantzone_runtime.engine.tiers.moved_prompt import Jobs, MovedPrompt
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.prompts import Prompts
from tenantzone_runtime.shared.rate_limit import RateLimit

CHUNKS_AT_ONCE: Final = 64
"""Maximum number of chunks that are being copied at the same time."""

Steps = Generator[Jobs, None, None]
Counted = Generator[Jobs, None, int]


@dataclass(slots=True)
class Task:
    """A migration and its progress."""

    tenant: str
    work: Work
    prompts: Prompts
    rate_limit: RateLimit
    began: float
    asked: float
    """Monotonic time in seconds at which a client last asked for the progress."""
    final: dict[str, Any] | None = None
    """The report of an ended task, or None while the task runs."""
    state: State = "Running"
    problem: str = ""
    prompts_done: int = 0
    moved: int = 0
    found: set[bytes] = field(default_factory=set)
    left: set[bytes] = field(default_factory=set)
    rests_until: float = 0.0
    """Monotonic time in seconds until which the task pauses, because of the rate limit."""

    def end(self, state: State, problem: str, now: float) -> None:
        """End the task. Keep its final report, and release its prompts and keys."""
        self.state, self.problem = state, problem
        self.final = self.report(now)
        self.prompts = ()
        self.found.clear()
        self.left.clear()

    def report(self, now: float) -> dict[str, Any]:
        """Returns the fields of a ``MigrationReport`` that describe the task."""
        if self.final is not None:
            return self.final
        return {
            "work": self.work,
            "state": self.state,
            "problem": self.problem,
            "prompts_total": len(self.prompts),
            "prompts_done": self.prompts_done,
            "moved": self.moved,
            "found": len(self.found),
            "left": len(self.left - self.found),
            "seconds": now - self.began,
        }


class Moving:
    """The migration steps of one engine.

    Args:
        scheduler: the scheduler's side of the offloading connector, with zones.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._names = count()

    def steps(self, task: Task) -> Steps:
        """Returns all steps of a task.

        Raises:
            MigrationError: the task can't continue.
        """
        ways = {"hand-down": self._hand_down, "warm-up": self._warm_up}
        for prompt in task.prompts if task.work in ways else ():
            with self._moved(task, prompt) as moved:
                yield from ways[task.work](task, moved)
            task.prompts_done += 1
        # The most recently used prompt comes last, so that it is evicted last if not all prompts fit.
        see = self._see_up if task.work == "warm-up" else self._see_down
        for prompt in reversed(task.prompts):
            with self._moved(task, prompt) as moved:
                yield from see(task, moved)
            yield {}

    @contextmanager
    def _moved(self, task: Task, prompt: Sequence[bytes]) -> Iterator[MovedPrompt]:
        moved = MovedPrompt(self._scheduler, f"migration-{next(self._names)}", task.tenant, prompt)
        try:
            yield moved
        finally:
            moved.end()

    def _hand_down(self, task: Task, moved: MovedPrompt) -> Steps:
        there = yield from self._count_in_storages(moved, moved.query)
        while there < len(moved.keys):
            chunks = yield from self._afford(task)
            jobs, begun = self._begin_down(moved, there, chunks)
            if not begun:
                return
            task.rate_limit.spend(begun, time.monotonic())
            yield jobs
            yield from self._wait_for(moved)
            now_there = yield from self._count_in_storages(moved, Query(moved.keys))
            if now_there <= there:
                return
            task.moved += min(begun, now_there - there)
            there = now_there
            moved.let_go()

    def _begin_down(self, moved: MovedPrompt, first: int, most: int) -> tuple[Jobs, int]:
        """Begin to copy the next chunks: to storages if they are in CPU memory, else from blocks to CPU memory.

        Returns:
            Jobs for the workers in this step, and the number of chunks whose copies have begun.
        """
        in_memory = moved.count_kept(first, most)
        if in_memory:
            moved.copy_down(moved.keys[first : first + in_memory])
            return {}, in_memory
        chunks: list[Sequence[int]] = []
        for index in range(first, min(first + most, len(moved.keys))):
            blocks = moved.blocks_of(index)
            if blocks is None:
                break
            chunks.append(blocks)
        jobs = moved.store(first, chunks) if chunks else {}
        return jobs, len(chunks) if jobs else 0

    def _warm_up(self, task: Task, moved: MovedPrompt) -> Steps:
        there, first = (yield from self._count_in_storages(moved, moved.query)), 0
        while first < there:
            chunks = yield from self._afford(task)
            run = moved.keys[first : min(there, first + chunks)]
            kept, room = moved.kept(run), self._room(task.tenant)
            lacking = [index for index, key in enumerate(run) if key not in kept]
            if len(lacking) > room:
                run = run[: lacking[room]]
            if not run:
                return
            new = min(room, len(lacking))
            while not moved.bring_up(run):
                yield {}
            task.rate_limit.spend(new, time.monotonic())
            yield {}
            yield from self._wait_for(moved)
            lost = len(run) - moved.count_kept(first, len(run))
            task.moved += max(0, new - lost)
            if lost:
                return
            first += len(run)

    def _room(self, tenant: str) -> int:
        """Returns how many chunks a zone can add to CPU memory without evicting its chunks or protected chunks."""
        tier = self._scheduler.manager.primary_tier.tier
        zone = tier.ledger.zones.get(tenant)
        if zone is None:
            return 0
        quota = zone.spec.quota
        return max(0, min(max(quota.reserved - zone.held, tier.free), quota.limit - zone.held))

    def _see_down(self, task: Task, moved: MovedPrompt) -> Steps:
        there = yield from self._count_in_storages(moved, moved.query)
        task.found.update(moved.keys[:there])
        end = there
        while end < len(moved.keys) and (moved.count_kept(end, 1) or moved.blocks_of(end) is not None):
            end += 1
            if not end % CHUNKS_AT_ONCE:
                yield {}
        task.left.update(moved.keys[there:end])

    def _see_up(self, task: Task, moved: MovedPrompt) -> Steps:
        kept = 0
        while more := moved.count_kept(kept, CHUNKS_AT_ONCE):
            kept += more
            yield {}
        moved.use(moved.keys[:kept])
        task.found.update(moved.keys[:kept])
        task.left.update(moved.keys[kept:])

    def _count_in_storages(self, moved: MovedPrompt, query: Query) -> Counted:
        shared = self._scheduler.manager.shared_tier.below
        while (found := shared.count(moved.tenant, query)) is None:
            yield {}
        if not query.is_answered:
            problem = shared.why_closed(moved.tenant) or shared.problem
            raise MigrationError(problem or "the KV-cache manager did not report which chunks storages have")
        return int(found)

    def _afford(self, task: Task) -> Counted:
        """Wait until the rate limit allows a chunk to be moved. Returns how many chunks it allows."""
        while not (chunks := task.rate_limit.chunks(now := time.monotonic())):
            task.rests_until = task.rate_limit.next_chunk(now)
            yield {}
        return min(chunks, CHUNKS_AT_ONCE)

    @staticmethod
    def _wait_for(moved: MovedPrompt) -> Steps:
        while moved.is_moving:
            yield {}
