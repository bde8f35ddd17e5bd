"""Moves a zone's cached chunks from one engine to shared storages, and from there to the CPU memory of another engine.

A migration copies some chunks in each step of the engine, at the requested rate. It makes an idle engine run steps. If
a migration fails, only cache hits are lost.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tenantzone_contract.cache.migration import PATIENCE_SECONDS, MigrationError, MigrationOrder, State
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_runtime.engine.tiers.moved_prompt import Jobs
from tenantzone_runtime.engine.tiers.moving import Moving, Steps, Task
from tenantzone_runtime.shared.prompts import Prompts, RecentPrompts
from tenantzone_runtime.shared.rate_limit import RateLimit
from tenantzone_runtime.zones.model.zone import Zone

logger = logging.getLogger(__name__)

TENANTS_AT_ONCE: Final = 100
"""Maximum number of tenants whose recorded prompts one call of ``upkeep`` trims. The tenants take turns."""
ENDING: Final = "this engine is shutting down"
_GROUPS: Final = (
    "this engine's model has several groups of KV caches, so it needs no migration; chunks are copied to storages "
    "when a request ends, and loaded when a request needs them"
)
"""Message with which an engine refuses migrations if its model has several KV cache groups."""


class Migration:
    """Runs one engine's part of a migration, for one zone at a time. Callers must hold the scheduler's lock.

    Args:
        scheduler: the scheduler's side of the offloading connector, with zones.
    """

    def __init__(self, scheduler: Any) -> None:
        self.recent = RecentPrompts()
        self.tasks: dict[str, Task] = {}
        """The last task of each zone, by tenant."""
        self.wake: Callable[[], object] = bool
        """Makes an idle engine run a step."""
        self.may_go_on: Callable[[], bool] = lambda: True
        """Returns False while the engine shuts down or is paused, because shutdown and pause must not wait for a
        migration."""
        self.is_ending: Callable[[], bool] = lambda: False
        """Returns whether the engine is shutting down and runs steps only for existing requests."""
        self.patience = PATIENCE_SECONDS
        self._scheduler = scheduler
        self._moving = Moving(scheduler)
        self._task: Task | None = None
        self._steps: Steps | None = None
        self._purges: Mapping[str, str] = {}
        self._to_trim: list[str] = []
        """Tenants whose recorded prompts are to be trimmed next, in reverse order."""

    @property
    def wants_step(self) -> bool:
        """Whether the migration needs a step. May be read without the lock."""
        task = self._task
        return task is not None and time.monotonic() >= task.rests_until and self.may_go_on()

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk in CPU memory, in bytes."""
        return int(self._scheduler.manager.primary_tier.tier.chunk_bytes)

    @property
    def chunk_tokens(self) -> int:
        """Number of tokens of a chunk."""
        return int(self._scheduler.config.kv_group_configs[0].tokens_per_chunk)

    # Orders

    def begin(self, order: MigrationOrder, prompts: Prompts) -> None:
        """Begin a migration. An earlier migration of the zone stops. Chunks that it has moved are not moved again.

        Args:
            order: any order except "stop".
            prompts: the zone's prompts, most recently used first.

        Raises:
            MigrationError: the migration is impossible now. The message states the reason.
        """
        assert order.order != "stop"
        shared = self._scheduler.manager.shared_tier
        if shared is None:
            raise MigrationError("this engine has no shared storages; start it with --manager-url")
        if shared.moves_whole_hits:
            raise MigrationError(_GROUPS)
        if self.is_ending():
            raise MigrationError(ENDING)
        if order.tenant not in shared.below.zones:
            raise MigrationError(f"tenant {order.tenant} has no zone in this engine's config; create a zone first")
        if self._task is not None and self._task.tenant != order.tenant:
            raise MigrationError(f"the zone of tenant {self._task.tenant} is being moved; wait for its end, or stop it")
        self.stop(order.tenant, "a new migration of this zone was requested")
        now = time.monotonic()
        rate_limit = RateLimit(order.bytes_per_second, self.chunk_bytes, now)
        self._task = self.tasks[order.tenant] = task = Task(order.tenant, order.order, prompts, rate_limit, now, now)
        self._steps = self._moving.steps(task)
        self.wake()

    def report(self, tenant: str) -> dict[str, Any]:
        """Returns the report of a zone's last task. A task stops if its report is not read for ``patience`` seconds."""
        task, now = self.tasks.get(tenant), time.monotonic()
        if task is None:
            return {}
        task.asked = now
        return task.report(now)

    def stop(self, tenant: str, why: str) -> None:
        """Stop a zone's migration if it is running. Chunks that were moved stay in their new tier."""
        if self._task is not None and self._task.tenant == tenant:
            self._end("Stopped", why)

    def stop_all(self, why: str) -> None:
        """Stop the running migration, if any."""
        if self._task is not None:
            self._end("Stopped", why)

    def _end(self, state: State, problem: str = "") -> None:
        task, steps = self._task, self._steps
        self._task = self._steps = None
        if task is not None:
            now = time.monotonic()
            task.end(state, problem, now)
            result = f"{task.work} {state}, {task.moved} chunks moved in {now - task.began:.1f} s {problem}".rstrip()
            logger.info("the zone of tenant %s: %s", task.tenant, result, extra={"tenant": task.tenant})
        if steps is not None:
            steps.close()

    # Recorded prompts

    def remember(self, zone: Zone, hashes: Sequence[bytes]) -> None:
        """Record the block hashes of an ended request, because a migration may move its blocks."""
        self.recent.note(zone.spec.tenant, hashes)
        self._trim(zone.spec.tenant)

    def _trim(self, tenant: str) -> None:
        """Limit the number of recorded blocks of a zone to the number of its blocks in the engine and in CPU memory."""
        scheduler = self._scheduler
        chunks = scheduler.manager.primary_tier.tier.ledger.zones.get(tenant)
        in_memory = 0 if chunks is None else chunks.held * scheduler.config.blocks_per_chunk
        self.recent.trim(tenant, scheduler.held_blocks(tenant) + in_memory)

    def apply(self, config: RuntimeConfig) -> None:
        """Stop migrations of zones that were removed or purged, or may not cache or offload. Forget their prompts."""
        purges = {
            zone.tenant: zone.purge for zone in config.zones if not zone.retention.no_store and zone.offload != "Never"
        }
        for tenant in {*self.recent.tenants, *self.tasks}:
            if purges.get(tenant) != self._purges.get(tenant, ""):
                self.stop(tenant, "the zone was removed or purged, or it no longer caches or offloads")
                self.recent.forget(tenant)
                self.tasks.pop(tenant, None)
        self._purges = purges

    def upkeep(self) -> Iterator[None]:
        """Trim recorded prompts, and stop or continue the migration. Called several times a second."""
        self._to_trim = self._to_trim or self.recent.tenants
        for _ in range(min(TENANTS_AT_ONCE, len(self._to_trim))):
            self._trim(self._to_trim.pop())
            yield
        if self.is_ending():
            self.stop_all(ENDING)
        task = self._task
        if task is not None and time.monotonic() - task.asked > self.patience:
            self.stop(task.tenant, f"no client has asked for the migration's report for {self.patience:g} s")
        if self.wants_step:
            self.wake()

    # Steps

    def turn(self) -> Jobs:
        """Continue the migration. Called in each step. Returns jobs that copy chunks out of blocks after the step."""
        if self._steps is None or not self.wants_step:
            return {}
        try:
            return next(self._steps)
        except StopIteration:
            self._end("Done")
        except MigrationError as error:
            self._end("Failed", str(error))
        except Exception as error:
            # A failing migration must not fail a step of the engine.
            logger.exception("a migration failed")
            self._end("Failed", repr(error))
        return {}
