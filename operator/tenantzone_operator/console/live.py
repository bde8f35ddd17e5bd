"""Polls engines for their current reports while a page of the console is open."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tenantzone_contract.cache.blocks import BLOCKS_PATH, CELLS_PARAMETER, TIER_PARAMETER, BlockMap, parse_block_map
from tenantzone_contract.reports.report import EngineReport
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.text import printable
from tenantzone_operator.engines.answers import read_answer, read_report, reason
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.reports import max_report_bytes
from tenantzone_operator.engines.watch import WatchedEngine
from tenantzone_operator.kube.resources import Pod, Pool
from tenantzone_operator.kube.rest import REQUEST_ERRORS
from tenantzone_operator.kube.store import Key, Store, View

FRESH_SECONDS = 0.8
"""Minimum number of seconds between two requests to an engine, even if many pages are open."""
_AT_ONCE = 16
"""Maximum number of engines that are polled concurrently."""
CURRENT_SECONDS = 3.0
"""The history uses a report only if the report is at most this number of seconds old."""
_PICTURE_SECONDS = 5.0
"""Timeout for a block map in seconds. It is long, because an engine needs some time for half a million blocks."""
_MAX_PICTURE_BYTES = 2**20
_KEPT_SECONDS = 30.0
_MAX_POOLS = 4
"""Maximum number of pools in the cache. The least recently viewed pool is removed first."""

TRANSIENT = (OSError, ValueError)
"""Exceptions that a request to an engine may raise."""


class NotThereError(Exception):
    """The requested engine does not exist or is not ready; the message names the pool and the engine."""


LiveEngine = WatchedEngine[EngineReport]
"""One ready engine with its last report. Texts in the report may contain any characters."""


@dataclass(slots=True)
class _PoolLook:
    pods: list[Pod] = field(default_factory=list)
    """Pods that the pool's selector matches; only filled if this replica does not watch the pool's pods."""
    engines: dict[tuple[str, str], LiveEngine] = field(default_factory=dict)
    asked_at: float = float("-inf")
    fresh_until: float = float("-inf")
    quota: ReadingQuota = field(default_factory=ReadingQuota)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class LiveEngines:
    """Polls the engines of the pools whose pages are open.

    Args:
        store: contains the pools and engines.
        list_pods: lists the pods that a pool selects, because a standby replica watches no pods.
        read_tokens: called with a pool's namespace and name; returns the tokens for the admin ports of its engines.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        list_pods: Callable[[Pool], Awaitable[list[Pod]]],
        read_tokens: Callable[[str, str], Awaitable[Sequence[str]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._list_pods = list_pods
        self._read_tokens = read_tokens
        self._clock = clock
        self._pools: dict[Key, _PoolLook] = {}

    def view(self, key: Key) -> View:
        """Returns the pool's objects from the store. Pods that this replica does not watch come from the last poll."""
        view, look = self._store.view(key), self._pools.get(key)
        if view.pool is None or look is None or key in self._store.pods:
            return view
        return replace(view, pods=self._store.own_pods(view.pool, look.pods))

    async def engines(self, key: Key) -> list[LiveEngine]:
        """Returns the pool's ready engines, sorted by name, with reports that are at most a moment old."""
        # The dictionary is an LRU cache, with the most recently viewed pool at the end.
        look = self._pools[key] = self._pools.pop(key) if key in self._pools else _PoolLook()
        while len(self._pools) > _MAX_POOLS:
            del self._pools[next(iter(self._pools))]
        async with look.asking:
            if self._clock() >= look.fresh_until:
                await self._ask(key, look)
        return list(look.engines.values())

    async def block_map(self, key: Key, pod_name: str, cells: int, tier: str = "") -> BlockMap:
        """Request a map of an engine's blocks, or of a tier's chunks.

        Raises:
            NotThereError: the pool has no such engine.
            ValueError, OSError: the engine does not answer, or the answer is invalid.
        """
        view = self.view(key)
        pod = next((pod for pod in view.engines if pod.meta.name == pod_name), None)
        if view.pool is None or pod is None:
            raise NotThereError(f"{'/'.join(key)} has no ready engine {pod_name}")
        path = f"{BLOCKS_PATH}?{CELLS_PARAMETER}={cells}" + (f"&{TIER_PARAMETER}={tier}" if tier else "")
        return await read_answer(
            pod,
            view.pool.admin_port,
            path,
            _read_block_map,
            max_bytes=_MAX_PICTURE_BYTES,
            quota=ReadingQuota(),
            patience=_PICTURE_SECONDS,
            tokens=await self._read_tokens(*key),
        )

    def held(self, key: Key) -> dict[str, int] | None:
        """Returns the number of blocks that each declared zone of a pool holds, by zone name.

        Returns None if no page of the pool is open, or if an engine of the pool does not answer.
        """
        look = self._pools.get(key)
        if look is None or self._clock() - look.asked_at > CURRENT_SECONDS:
            return None
        reports = [engine.report for engine in look.engines.values()]
        if not reports or None in reports:
            return None
        looks = by_name(declared(report for report in reports if report is not None))
        return {name: ZoneSummary.of(zones).held or 0 for name, zones in looks.items()}

    def forget_unseen(self) -> None:
        """Forget the cached pools that no page has requested in the last ``_KEPT_SECONDS``."""
        now = self._clock()
        self._pools = {
            key: look
            for key, look in self._pools.items()
            if now - look.asked_at <= _KEPT_SECONDS or look.asking.locked()
        }

    async def _ask(self, key: Key, look: _PoolLook) -> None:
        pool = self._store.view(key).pool
        if pool is not None and key not in self._store.pods:
            with suppress(*REQUEST_ERRORS):
                look.pods = await self._list_pods(pool)
        tokens = await self._read_tokens(*key)
        view = self.view(key)
        pods = sorted(view.engines, key=lambda pod: pod.meta.name)
        known = look.engines
        look.engines = {(pod.meta.uid, pod.ip): known.get((pod.meta.uid, pod.ip)) or LiveEngine(pod) for pod in pods}
        port = view.pool.admin_port if view.pool is not None else 0
        max_bytes = max_report_bytes(len(view.zones), may_register=True)
        slots = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(
            *(self._ask_one(engine, port, max_bytes, look.quota, tokens, slots) for engine in look.engines.values())
        )
        look.asked_at = self._clock()
        look.fresh_until = look.asked_at + max(FRESH_SECONDS, look.quota.pause_seconds())

    async def _ask_one(
        self,
        engine: LiveEngine,
        port: int,
        max_bytes: int,
        quota: ReadingQuota,
        tokens: Sequence[str],
        slots: asyncio.Semaphore,
    ) -> None:
        try:
            async with slots:
                report = await read_report(engine.pod, port, max_bytes, quota, tokens)
        except TRANSIENT as error:
            if engine.is_unreachable(self._clock()):
                engine.lose(reason(error))
        else:
            engine.hear(report, report.published_unix_time, self._clock())


def declared(reports: Iterable[EngineReport]) -> Iterable[ZoneReport]:
    """Returns the zones in these reports that belong to TenantZones, without auto-registered zones."""
    return (zone for report in reports for zone in report.zones if not zone.auto_registered)


def by_name(zones: Iterable[ZoneReport]) -> dict[str, list[ZoneReport]]:
    """Returns zones from several engines' reports, grouped by zone name; unprintable characters are replaced."""
    found: dict[str, list[ZoneReport]] = {}
    for zone in zones:
        found.setdefault(printable(zone.name), []).append(zone)
    return found


async def _read_block_map(text: bytes) -> BlockMap:
    return parse_block_map(text)
