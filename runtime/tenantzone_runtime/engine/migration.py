"""Moves what a zone has cached: down to storages that engines share, and on another engine up into its CPU memory.

It goes on in the engine's steps, a run of chunks at a time, at the pace that was asked for; an engine without requests
is woken for it. What it fails at costs hits.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.migration import PATIENCE_SECONDS, MigrationError, MigrationOrder, State
from tenantzone_runtime.engine.moved_prompt import Jobs
from tenantzone_runtime.engine.moving import Moving, Steps, Task
from tenantzone_runtime.shared.pace import Pace
from tenantzone_runtime.shared.prompts import Prompts, RecentPrompts
from tenantzone_runtime.zones.zone import Zone

logger = logging.getLogger(__name__)

TENANTS_AT_ONCE: Final = 100
"""Whose prompts are compared with what is cached beside the steps; of thousands, each comes in its turn."""
ENDING: Final = "this engine shuts down"
_GROUPS: Final = (
    "this engine's model has several groups of KV caches: what its zones use goes to storages whenever a request ends, "
    "and comes up when it is asked for"
)
"""Why such zones are not moved."""


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
        self.may_go_on: Callable[[], bool] = lambda: True
        """Whether the engine neither ends nor is paused: whoever waits for that does not wait for what is moved."""
        self.is_ending: Callable[[], bool] = lambda: False
        """Whether the engine makes no step any more but for requests that it has."""
        self.patience = PATIENCE_SECONDS
        self._scheduler = scheduler
        self._moving = Moving(scheduler)
        self._task: Task | None = None
        self._steps: Steps | None = None
        self._purges: Mapping[str, str] = {}
        self._to_trim: list[str] = []
        """Tenants who have their turn next, the last one first."""

    @property
    def wants_step(self) -> bool:
        """Whether a step is to bring it on; asked at any moment."""
        task = self._task
        return task is not None and time.monotonic() >= task.rests_until and self.may_go_on()

    @property
    def chunk_bytes(self) -> int:
        """Of a chunk in CPU memory."""
        return int(self._scheduler.manager.primary_tier.tier.chunk_bytes)

    @property
    def chunk_tokens(self) -> int:
        """That a chunk holds."""
        return int(self._scheduler.config.kv_group_configs[0].tokens_per_chunk)

    # Orders

    def begin(self, order: MigrationOrder, prompts: Prompts) -> None:
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
        if shared.moves_whole_hits:
            raise MigrationError(_GROUPS)
        if self.is_ending():
            raise MigrationError(ENDING)
        if order.tenant not in shared.shared.zones:
            raise MigrationError(f"tenant {order.tenant} has no zone of its own in this engine's config")
        if self._task is not None and self._task.tenant != order.tenant:
            raise MigrationError(f"the zone of tenant {self._task.tenant} is being moved; wait for it, or stop it")
        self.stop(order.tenant, "it was asked for again")
        now = time.monotonic()
        pace = Pace(order.bytes_per_second, self.chunk_bytes, now)
        self._task = self.tasks[order.tenant] = task = Task(order.tenant, order.order, prompts, pace, now, now)
        self._steps = self._moving.steps(task)
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
            now = time.monotonic()
            task.end(state, problem, now)
            told = f"{task.work} {state}, {task.moved} chunks moved in {now - task.began:.1f} s {problem}".rstrip()
            logger.info("the zone of tenant %s: %s", task.tenant, told, extra={"tenant": task.tenant})
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
        self._to_trim = self._to_trim or self.recent.tenants
        for _ in range(min(TENANTS_AT_ONCE, len(self._to_trim))):
            self._trim(self._to_trim.pop())
            yield
        if self.is_ending():
            self.stop_all(ENDING)
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
