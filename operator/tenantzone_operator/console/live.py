"""Polls engines for their current reports for the console, but only while a page is open."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import aiohttp

from tenantzone_contract.cache.blocks import BLOCKS_PATH, CELLS_PARAMETER, TIER_PARAMETER, BlockMap, parse_block_map
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.text import printable
from tenantzone_operator.engines.answers import read_answer, read_report, reason
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.reports import EngineReport, LoanReport, TierReport, ZoneReport, max_report_bytes
from tenantzone_operator.engines.views import ZoneView, zone_view
from tenantzone_operator.engines.watch import FROZEN_SECONDS, HANGS, SILENCE_SECONDS
from tenantzone_operator.kube.resources import Pod, Pool
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.store import Key, Store, View

FRESH_SECONDS = 0.8
"""Minimum number of seconds between two requests to an engine, however many pages are open."""
_AT_ONCE = 16
"""Maximum number of engines that are polled concurrently."""
CURRENT_SECONDS = 3.0
"""Age in seconds from which an answer is no longer current."""
_PICTURE_SECONDS = 5.0
"""Timeout for a block map in seconds; an engine needs a while for half a million blocks."""
_MAX_PICTURE_BYTES = 2**20
_KEPT_SECONDS = 30.0
_LONGEST_REFUSAL = 1000
_MAX_POOLS = 4
"""Maximum number of pools in the cache; the least recently viewed pool is dropped first."""

TRANSIENT = (OSError, ValueError)
"""Exceptions that a request to an engine may raise."""


class NotThereError(Exception):
    """The requested pool or engine does not exist; the message says which."""


@dataclass(frozen=True, slots=True)
class LiveZone:
    """The parts of a zone's report from one engine that the console shows."""

    name: str
    tenant: str
    is_registered: bool
    waiting_requests: int
    running_requests: int
    wait_reason: str | None
    reserved_seats: int
    """Number of requests that can run at once regardless of other zones."""
    computed_tokens: int
    """Number of tokens computed in steps since the engine's start."""
    amounts: ZoneView


@dataclass(frozen=True, slots=True)
class LiveReport:
    """The parts of an engine's newest report that the console shows."""

    engine_version: str
    capacity_blocks: int
    block_size_tokens: int
    free_blocks: int
    generation: int | None
    refusal: str
    """Why the engine refuses the newest config; empty if it does not."""
    tiers: tuple[TierReport, ...]
    zones: tuple[LiveZone, ...]
    loans: tuple[LoanReport, ...]


@dataclass(slots=True, weakref_slot=True)
class LiveEngine:
    """One ready engine, with its last report or the error that prevented one."""

    pod: Pod
    live_report: LiveReport | None = None
    error: str = ""
    """Why no report is available; empty if one is."""
    answered_at: float = float("-inf")
    published: float = 0.0
    """Time of the last report by the engine's clock; only compared with the time of the next report."""
    renewed_at: float = 0.0

    def hear(self, report: EngineReport, now: float) -> None:
        self.answered_at = now
        if report.published_unix_time != self.published:
            self.published, self.renewed_at = report.published_unix_time, now
        if now - self.renewed_at > FROZEN_SECONDS:
            self.live_report, self.error = None, HANGS
        else:
            self.live_report, self.error = _live_report(report), ""

    def miss(self, error: Exception, now: float) -> None:
        """Record that the engine did not answer; a single late answer is tolerated."""
        if now - self.answered_at > SILENCE_SECONDS:
            self.live_report, self.error = None, reason(error)


@dataclass(slots=True)
class _PoolLook:
    pods: list[Pod] = field(default_factory=list)
    """Pods that the pool's selector matches, if this replica does not watch them."""
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
        read_tokens: returns the tokens for the admin ports of a pool's engines, by its namespace and name.
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
        """Returns the pool's objects from the store; pods that are not watched come from the last poll of the pool."""
        view, look = self._store.view(key), self._pools.get(key)
        if view.pool is None or look is None or key in self._store.pods:
            return view
        return replace(view, pods=self._store.own_pods(view.pool, look.pods))

    async def engines(self, key: Key) -> list[LiveEngine]:
        """Returns the pool's ready engines by name, polled now, or a moment ago for another page."""
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
            ValueError, OSError: the engine does not answer, or its answer is invalid.
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
        """Returns the blocks held by each declared zone of a pool.

        Returns None if no page of the pool is open, or if one of its engines does not answer.
        """
        look = self._pools.get(key)
        if look is None or self._clock() - look.asked_at > CURRENT_SECONDS:
            return None
        live_reports = [engine.live_report for engine in look.engines.values()]
        if not live_reports or None in live_reports:
            return None
        looks = by_name(declared(engine for engine in live_reports if engine is not None))
        return {name: summarized(zones).held or 0 for name, zones in looks.items()}

    def forget_unseen(self) -> None:
        """Drop pools that no page has requested for a while."""
        now = self._clock()
        self._pools = {
            key: look
            for key, look in self._pools.items()
            if now - look.asked_at <= _KEPT_SECONDS or look.asking.locked()
        }

    async def _ask(self, key: Key, look: _PoolLook) -> None:
        pool = self._store.view(key).pool
        if pool is not None and key not in self._store.pods:
            with suppress(RestError, aiohttp.ClientError, TimeoutError):
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
            engine.miss(error, self._clock())
        else:
            engine.hear(report, self._clock())


def declared(live_reports: Iterable[LiveReport]) -> Iterable[LiveZone]:
    """Returns the zones in these reports that TenantZones declare."""
    return (zone for live_report in live_reports for zone in live_report.zones if not zone.is_registered)


def by_name(zones: Iterable[LiveZone]) -> dict[str, list[LiveZone]]:
    """Returns zones from several engines' reports, grouped by zone name."""
    found: dict[str, list[LiveZone]] = {}
    for zone in zones:
        found.setdefault(zone.name, []).append(zone)
    return found


def summarized(zones: Iterable[LiveZone]) -> ZoneSummary:
    """Returns the totals of a zone over several engines' reports."""
    return ZoneSummary.of(zone.amounts for zone in zones)


def _live_report(report: EngineReport) -> LiveReport:
    rejected = report.config.rejected
    return LiveReport(
        engine_version=printable(report.engine_version),
        capacity_blocks=report.capacity_blocks,
        block_size_tokens=report.block_size_tokens,
        free_blocks=report.free_blocks,
        generation=report.config.applied_generation,
        refusal=printable(rejected.error, _LONGEST_REFUSAL) if rejected is not None else "",
        tiers=report.tiers,
        zones=tuple(_zone_look(zone) for zone in report.zones),
        loans=report.loans,
    )


async def _read_block_map(text: bytes) -> BlockMap:
    return parse_block_map(text)


def _zone_look(zone: ZoneReport) -> LiveZone:
    return LiveZone(
        name=printable(zone.name),
        tenant=printable(zone.tenant),
        is_registered=zone.auto_registered,
        waiting_requests=zone.waiting_requests,
        running_requests=zone.running_requests,
        wait_reason=printable(zone.waiting_for) if zone.waiting_for is not None else None,
        reserved_seats=zone.reserved_seats,
        computed_tokens=zone.computed_tokens,
        amounts=zone_view(zone),
    )
