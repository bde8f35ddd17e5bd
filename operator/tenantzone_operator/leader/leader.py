"""Runs the work that only the leader does, which is mainly reconciling pools."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from tenantzone_operator.kube.store import Key
from tenantzone_operator.pool.outcome import Outcome
from tenantzone_operator.pool.reconcile import Reconciler


class Leader:
    """Reconciles while this process leads, and ignores changes while it does not.

    Args:
        make_reconciler: called at the start of each term, so that no state survives from an earlier term.
        term_work: coroutine functions that also run during a term, until they are cancelled.
    """

    def __init__(
        self,
        make_reconciler: Callable[[], Reconciler],
        term_work: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self._make_reconciler = make_reconciler
        self._term_work = term_work
        self._reconciler: Reconciler | None = None
        self._began_at: float | None = None
        self._listed_at: float | None = None

    def mark(self, key: Key) -> None:
        """Schedule a reconcile of a pool; ignored on a standby, because its term will begin with all pools."""
        if self._reconciler is not None:
            self._reconciler.mark(key)

    def mark_namespace(self, namespace: str) -> None:
        """Schedule a reconcile of all pools of a namespace."""
        if self._reconciler is not None:
            self._reconciler.mark_namespace(namespace)

    def check_all(self) -> None:
        """Schedule a reconcile of all pools, because a listing has just corrected the store."""
        self._listed_at = time.monotonic()
        if self._reconciler is not None:
            self._reconciler.check_all()

    def age_seconds(self) -> float | None:
        """Returns the seconds since the oldest last attempt of any pool, or since the term began; None on a standby."""
        if self._reconciler is not None:
            return self._reconciler.age_seconds()
        return time.monotonic() - self._began_at if self._began_at is not None else None

    def without_pods(self) -> tuple[int, int]:
        """Returns the number of served pools whose listing of pods is too old, and the number of all served pools.

        Both are 0 on a standby.
        """
        return self._reconciler.without_pods() if self._reconciler is not None else (0, 0)

    def outcomes(self) -> Mapping[Key, Outcome]:
        """Returns the outcome of each pool's last reconcile; empty on a standby."""
        return self._reconciler.outcomes() if self._reconciler is not None else {}

    def listing_age_seconds(self) -> float | None:
        """Returns the seconds since the last listing of zones and pools; None before the first listing."""
        return time.monotonic() - self._listed_at if self._listed_at is not None else None

    async def run(self, list_all: Callable[[], Awaitable[None]]) -> None:
        """Lead for one term, until cancelled.

        Args:
            list_all: corrects the store first, because with a lagging watch a new leader would undo the old leader's
                work.
        """
        self._began_at = time.monotonic()
        tasks: list[asyncio.Task[None]] = []
        try:
            await list_all()
            self._reconciler = self._make_reconciler()
            self._reconciler.check_all()
            tasks += [asyncio.create_task(work()) for work in self._term_work]
            await asyncio.Event().wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stopped, self._reconciler = self._reconciler, None
            self._began_at = None
            if stopped is not None:
                await stopped.stop()
