"""Moves what a zone has cached: down to storages that engines share, and on another engine up into its CPU memory.

It goes on in the engine's steps, a run of chunks at a time, at the pace that was asked for; an engine without requests
is woken for it. What it fails at costs hits.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.migration import PATIENCE_SECONDS, MigrationError, MigrationOrder, State, Work
from tenantzone_runtime.engine.moved_prompt import Jobs, MovedPrompt
from tenantzone_runtime.shared.pace import Pace
from tenantzone_runtime.shared.prompts import RecentPrompts
from tenantzone_runtime.shared.queries import Query
from tenantzone_runtime.zones.zone import Zone

logger = logging.getLogger(__name__)

CHUNKS_AT_ONCE: Final = 64
"""That are on their way together."""

Steps = Generator[Jobs, None, None]
Counted = Generator[Jobs, None, int]


@dataclass(slots=True)
class Task:
    """What was asked for, and how far it has come."""

    tenant: str
    work: Work
    prompts: Sequence[Sequence[bytes]]
    pace: Pace
    began: float
    asked: float
    """When somebody asked for the last time how far it has come."""
    ended: float | None = None
    state: State = "Running"
    problem: str = ""
    prompts_done: int = 0
    moved: int = 0
    found: set[bytes] = field(default_factory=set)
    left: set[bytes] = field(default_factory=set)
    rests_until: float = 0.0
    """No step is made for it before."""

    def told(self, now: float) -> dict[str, Any]:
        """What a report has of it."""
        return {
            "work": self.work,
            "state": self.state,
            "problem": self.problem,
            "prompts_total": len(self.prompts),
            "prompts_done": self.prompts_done,
            "moved": self.moved,
            "found": len(self.found),
            "left": len(self.left - self.found),
            "seconds": (now if self.ended is None else self.ended) - self.began,
        }


class Migration:
    """One engine's part, for one zone at a time. Called with the scheduler's lock held.

    Args:
        scheduler: the zones' side of vLLM's offloading.
    """

    def __init__(self, scheduler: Any) -> None:
        self.recent = RecentPrompts()
        self.tasks: dict[str, Task] = {}
        """The last one of each tenant's zone."""
        self.wake: Callable[[], object] = bool
        """Has the engine make a step, if it sleeps."""
        self.patience = PATIENCE_SECONDS
        self._scheduler = scheduler
        self._names = count()
        self._task: Task | None = None
        self._steps: Steps | None = None
        self._purges: Mapping[str, str] = {}

    @property
    def wants_step(self) -> bool:
        """Whether a step would bring it on; asked at any moment."""
        task = self._task
        return task is not None and time.monotonic() >= task.rests_until

    @property
    def chunk_bytes(self) -> int:
        """Of a chunk in CPU memory."""
        return int(self._scheduler.manager.primary_tier.tier.chunk_bytes)

    @property
    def chunk_tokens(self) -> int:
        """That a chunk holds."""
        return int(self._scheduler.config.kv_group_configs[0].tokens_per_chunk)

    # Orders

    def begin(self, order: MigrationOrder, prompts: Sequence[Sequence[bytes]]) -> None:
        """Begin what is asked for. What was asked for the same zone before ends; what it has moved is not moved again.

        Args:
            order: not to stop.
            prompts: of the zone, the one first that was used last.

        Raises:
            MigrationError: it can't be done now.
        """
        assert order.order != "stop"
        shared = self._scheduler.manager.shared_tier
        if shared is None:
            raise MigrationError("this engine has no shared storages: start it with --manager-url")
        if order.tenant not in shared.shared.zones:
            raise MigrationError(f"tenant {order.tenant} has no zone of its own in this engine's config")
        if self._task is not None and self._task.tenant != order.tenant:
            raise MigrationError(f"the zone of tenant {self._task.tenant} is being moved; wait for it, or stop it")
        self.stop(order.tenant, "it was asked for again")
        now = time.monotonic()
        pace = Pace(order.bytes_per_second, self.chunk_bytes, now)
        self._task = self.tasks[order.tenant] = task = Task(order.tenant, order.order, prompts, pace, now, now)
        self._steps = self._move(task)
        self.wake()

    def told(self, tenant: str) -> dict[str, Any]:
        """What a report has of what was asked for last; whoever asks wants it to go on."""
        task, now = self.tasks.get(tenant), time.monotonic()
        if task is None:
            return {}
        task.asked = now
        return task.told(now)

    def stop(self, tenant: str, why: str) -> None:
        """End what goes on for a zone, if anything does; what was moved stays where it is."""
        if self._task is not None and self._task.tenant == tenant:
            self._end("Stopped", why)

    def stop_all(self, why: str) -> None:
        """End what goes on, whoever's it is."""
        if self._task is not None:
            self._end("Stopped", why)

    def _end(self, state: State, problem: str = "") -> None:
        task, steps = self._task, self._steps
        self._task = self._steps = None
        if task is not None:
            task.state, task.problem, task.ended = state, problem, time.monotonic()
        if steps is not None:
            steps.close()

    # What is remembered

    def remember(self, zone: Zone, hashes: Sequence[bytes]) -> None:
        """Note that a request has ended whose prompt, and answer, may be kept in tiers, up to these blocks."""
        self.recent.note(zone.spec.tenant, hashes)
        self._trim(zone.spec.tenant)

    def _trim(self, tenant: str) -> None:
        """Remember no more of a zone than it has cached."""
        scheduler = self._scheduler
        chunks = scheduler.manager.primary_tier.tier.ledger.zones.get(tenant)
        in_memory = 0 if chunks is None else chunks.held * scheduler.config.blocks_per_chunk
        self.recent.trim(tenant, scheduler.held_blocks(tenant) + in_memory)

    def apply(self, config: RuntimeConfig) -> None:
        """Forget what zones have used that are gone, keep nothing, or were purged; and move it no more."""
        purges = {
            zone.tenant: zone.purge for zone in config.zones if not zone.retention.no_store and zone.offload != "Never"
        }
        for tenant in {*self.recent.tenants, *self.tasks}:
            if purges.get(tenant) != self._purges.get(tenant, ""):
                self.stop(tenant, "the zone keeps nothing of before")
                self.recent.forget(tenant)
                self.tasks.pop(tenant, None)
        self._purges = purges

    def upkeep(self) -> Iterator[None]:
        """Do what time does; several times a second."""
        for tenant in self.recent.tenants:
            self._trim(tenant)
            yield
        task = self._task
        if task is not None and time.monotonic() - task.asked > self.patience:
            self.stop(task.tenant, f"nobody has asked about it for {self.patience:g} s")
        if self.wants_step:
            self.wake()

    # Steps

    def turn(self) -> Jobs:
        """Go on, in a step; returns what the workers are to copy out of the engine's blocks after it."""
        if self._steps is None or not self.wants_step:
            return {}
        try:
            return next(self._steps)
        except StopIteration:
            self._end("Done")
        except MigrationError as error:
            self._end("Failed", str(error))
        except Exception as error:
            # No step of the engine's may fail for it.
            logger.exception("a migration failed")
            self._end("Failed", repr(error))
        return {}

    def _move(self, task: Task) -> Steps:
        ways = {"hand-down": self._hand_down, "warm-up": self._warm_up}
        for prompt in task.prompts if task.work in ways else ():
            with self._moved(task, prompt) as moved:
                yield from ways[task.work](task, moved)
            task.prompts_done += 1
        # What was used last is to be what was looked at last: where there is no room for all, the others go first.
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
            task.pace.spend(begun, time.monotonic())
            yield jobs
            yield from self._wait_for(moved)
            now_there = yield from self._count_in_storages(moved, Query(moved.keys))
            if now_there <= there:
                return
            task.moved += min(begun, now_there - there)
            there = now_there
            moved.let_go()

    def _begin_down(self, moved: MovedPrompt, first: int, most: int) -> tuple[Jobs, int]:
        """Have storages get what follows, as far as it is in CPU memory, or else in the engine's blocks."""
        in_memory = min(most, moved.count_kept(first))
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
            task.pace.spend(new, time.monotonic())
            yield {}
            yield from self._wait_for(moved)
            lost = max(0, len(run) - moved.count_kept(first))
            task.moved += max(0, new - lost)
            if lost:
                return
            first += len(run)

    def _room(self, tenant: str) -> int:
        """Chunks that a zone may get in CPU memory without evicting its own, or what others may hold on to."""
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
        while end < len(moved.keys) and (moved.kept(moved.keys[end : end + 1]) or moved.blocks_of(end) is not None):
            end += 1
        task.left.update(moved.keys[there:end])

    def _see_up(self, task: Task, moved: MovedPrompt) -> Steps:
        kept = moved.count_kept()
        moved.use(moved.keys[:kept])
        task.found.update(moved.keys[:kept])
        task.left.update(moved.keys[kept:])
        yield {}

    def _count_in_storages(self, moved: MovedPrompt, query: Query) -> Counted:
        shared = self._scheduler.manager.shared_tier.shared
        while (found := shared.count(moved.tenant, query)) is None:
            yield {}
        if not query.is_answered:
            raise MigrationError(shared.problem or "the KV-cache manager did not say what storages have")
        return int(found)

    def _afford(self, task: Task) -> Counted:
        """Wait until a chunk may be moved; returns how many may."""
        while not (chunks := task.pace.chunks(now := time.monotonic())):
            task.rests_until = task.pace.next_chunk(now)
            yield {}
        return min(chunks, CHUNKS_AT_ONCE)

    @staticmethod
    def _wait_for(moved: MovedPrompt) -> Steps:
        while moved.is_moving:
            yield {}
