"""The real console in a thread, over a store that a test fills and engines with chosen reports."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hack.ports import free_ports
from tenantzone_contract.cache.blocks import BlockKind, BlockMap
from tenantzone_contract.reports.report import ConfigStatus, EngineReport, LoanReport, TierReport
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_operator.console.server import ReplicaState, console_served
from tenantzone_operator.console.storages import Stored
from tenantzone_operator.kube.resources import Pod, Pool, read_pod
from tenantzone_operator.kube.store import InformerCache, Store
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tenantzone_runtime.housekeeping.report.picture import Picture
from tests.operator.objects import body, zone_report
from tests.reported import SETTINGS

Block = tuple[str | None, str, bool]
"""The zone, the use, and whether the block is borrowed."""
FREE: Block = (None, "free", False)
READY = [{"type": "Ready", "status": "True", "reason": "Enforced", "message": "enforced"}]


class Engine:
    """A real admin server that reports made-up blocks."""

    def __init__(self, name: str, blocks: Sequence[Block], address: tuple[str, int]) -> None:
        self.name = name
        self.host = address[0]
        self.blocks = list(blocks)
        self.zones: dict[str, dict[str, Any]] = {}
        """Further fields of zones' reports."""
        self.loans: tuple[LoanReport, ...] = ()
        self.tiers: tuple[TierReport, ...] = ()
        self.chunks: dict[str, list[Block]] = {}
        """Blocks of each tier, one for each chunk."""
        self._server = AdminServer(
            *address,
            self.report,
            access=AdminAccess(None),
            take_block_map=self.block_map,
            take_tier_map=self.tier_map,
        )
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def report(self) -> EngineReport:
        held = Counter((zone, use) for zone, use, _ in self.blocks)
        names = sorted({zone for zone, _, _ in self.blocks if zone is not None} | self.zones.keys())
        return EngineReport(
            engine_version="made-up",
            pod=self.name,
            capacity_blocks=len(self.blocks),
            block_size_tokens=32,
            free_blocks=held[None, "free"],
            config=ConfigStatus(applied_generation=1),
            **SETTINGS,
            tiers=self.tiers,
            zones=tuple(self._zone(name, held) for name in names),
            loans=self.loans,
            started_unix_time=0.0,
            published_unix_time=time.time(),
        )

    def _zone(self, name: str, held: Counter[tuple[str | None, str]]) -> ZoneReport:
        amounts = {"in_use": held[name, "in_use"], "cached": held[name, "cached"], "limit": len(self.blocks)}
        return zone_report(name, **{"state": "Active"} | amounts | self.zones.get(name, {}))

    def block_map(self, cells: int) -> BlockMap:
        return self._map_of(self.blocks, cells)

    def tier_map(self, tier: str, cells: int) -> BlockMap | None:
        chunks = self.chunks.get(tier)
        return None if chunks is None else self._map_of(chunks, cells).model_copy(update={"tier": tier})

    def _map_of(self, blocks: Sequence[Block], cells: int) -> BlockMap:
        each = -(-len(blocks) // cells)
        picture = Picture[Block]()
        for first in range(0, len(blocks), each):
            picture.add_cell(Counter(blocks[first : first + each]))
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind, _ in picture.runs))}
        kinds = [
            BlockKind(tenant=zone, zone=zone, use=use, borrowed=borrowed, blocks=picture.blocks[zone, use, borrowed])
            for zone, use, borrowed in numbers
        ]
        return BlockMap(
            pod=self.name,
            capacity_blocks=len(blocks),
            blocks_per_cell=each,
            kinds=tuple(kinds),
            runs=tuple((numbers[kind], count) for kind, count in picture.runs),
            taken_unix_time=time.time(),
        )


async def no_pods(_: Pool) -> list[Pod]:
    """Lists no pods: these pools have no watch."""
    return []


async def no_tokens(*_: str) -> tuple[str, ...]:
    return ()


class ServedConsole:
    """A console in its own thread, which also applies a test's changes.

    Args:
        list_stored: lists KVStorages and KVCacheGroups; None: the console knows of no KV-cache manager.
    """

    def __init__(self, list_stored: Callable[[], Awaitable[Stored]] | None = None) -> None:
        self._list_stored = list_stored
        (self.port,) = free_ports(1)
        self.url = f"http://localhost:{self.port}"
        self.replica_state = ReplicaState(is_leading=True, is_ready=True, has_listed=True)
        self._store = Store()
        self._pods = self._store.pods["default", "demo"] = InformerCache(read_pod)
        self._loop = asyncio.new_event_loop()
        self._versions = iter(range(1, 1_000_000))

    def add_pool(self, *, port: int = 1, **status: Any) -> None:
        spec = {"selector": {"matchLabels": {"app": "vllm"}}, "adminPort": port}
        self._put(self._store.pools.put, "demo", spec=spec, status={"conditions": READY} | status)

    def add_zone(self, name: str, *, status: Any = None, **spec: Any) -> None:
        self._put(self._store.zones.put, name, spec={"pool": "demo"} | spec, status=status or {"conditions": READY})

    def add_pod(self, name: str, ip: str = "127.0.0.1") -> None:
        status = {"podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}
        self._put(self._pods.put, name, metadata={"labels": {"app": "vllm"}}, status=status)

    def _put(self, put: Callable[[Any], object], name: str, **parts: Any) -> None:
        made = body(name, version=next(self._versions), **parts)
        self._in_its_thread(lambda: put(made))

    def _in_its_thread(self, what: Callable[[], object]) -> None:
        async def do() -> None:
            what()

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(60)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever, name="console")
        thread.start()
        stop = asyncio.Event()
        serving = threading.Event()

        async def serve() -> None:
            asked = (no_pods, no_tokens, lambda: self.replica_state, self._list_stored)
            async with console_served(self.port, self._store, *asked):
                serving.set()
                await stop.wait()

        done = asyncio.run_coroutine_threadsafe(serve(), self._loop)
        done.add_done_callback(lambda _: serving.set())
        assert serving.wait(60)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            done.result(60)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()
