"""A manager with a clock of its own, and engines that write what the test asks for."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from tenantzone_manager import spaces
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import Account, charged
from tenantzone_manager.core.records import CacheLocation
from tenantzone_manager.core.settings import Instance, InstanceGroup, Quota, Spec, Storage
from tenantzone_manager.index.backend import IndexBackend
from tenantzone_manager.manager import CacheManager, Settings
from tenantzone_manager.reads.reading import LocationPlace, Match
from tenantzone_manager.writes.writing import Started

SIZE = 4096
INSTANCE = Instance("chat", "team", 16, (Spec("tp0", SIZE),))
MiB = 2**20


class Clock:
    """Stands still until a test advances it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def keys(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


def prompt(name: str, blocks: int) -> list[bytes]:
    return [f"{name}{index:04}".encode() for index in range(blocks)]


class Playing:
    """One manager over a store, with a group ``team`` and what is said of it."""

    def __init__(
        self, backend: IndexBackend, root: Path, clock: Clock | None = None, settings: Settings | None = None
    ) -> None:
        self.clock = clock or Clock()
        self.root = root
        self.manager = CacheManager(backend, settings or Settings(orphan_grace=0.0), self.clock, self.clock)

    async def start(self, *, with_catalog: bool = True, **group: Any) -> "Playing":
        await self.manager.start(in_background=False)
        if with_catalog:
            await self.storage("disk")
            await self.group(**group)
            await self.manager.catalog.register_instance(INSTANCE)
        return self

    async def stop(self) -> None:
        await self.manager.stop()

    async def storage(self, name: str, type_: str = "FileSystem", **fields: Any) -> None:
        options = fields.pop("options", None)
        if options is None:
            (self.root / name).mkdir(exist_ok=True)
            options = {"root": str(self.root / name), **fields.pop("more", {})}
        await self.manager.catalog.put_storage(Storage(name, type_, options, **fields))
        await self.manager.storages.keep(self.manager.catalog.storages.values())

    async def group(self, storages: Iterable[str] = ("disk",), limit: int | None = None, **fields: Any) -> None:
        watermark = fields.pop("watermark", None)
        total = Quota(limit, watermark)
        await self.manager.catalog.put_group(InstanceGroup("team", tuple(storages), total=total, **fields))

    async def write(self, names: list[bytes], instance: Instance = INSTANCE, **fields: Any) -> Started:
        """Write what may be written, as an engine does."""
        started = await self.start_write(names, instance, **fields)
        await self.finish(names, started, instance)
        return started

    async def start_write(self, names: list[bytes], instance: Instance = INSTANCE, **fields: Any) -> Started:
        return await self.manager.writer.start_write_cache(instance, names, **fields)

    async def finish(self, names: list[bytes], started: Started, instance: Instance = INSTANCE) -> list[Any]:
        for index, location in started.locations.items():
            write_bytes(location, names[index])
        written = [names[index] for index in started.locations]
        return await self.manager.writer.finish_write_cache(instance, started.write_id, written, [])

    async def match(
        self, names: list[bytes], instance: Instance = INSTANCE, query: Any = "prefix", **more: Any
    ) -> Match:
        return await self.manager.reader.get_cache_location(instance, names, query, **more)

    async def hits(self, names: list[bytes], instance: Instance = INSTANCE) -> int:
        """Blocks of a prompt that are there, after a look at what lies where they are said to be."""
        match = await self.match(names, instance)
        for name, block in zip(names, match.blocks, strict=False):
            assert read_bytes(block.locations[0]) == name
        return len(match.blocks)

    async def reclaim(self, *, after: float = 0.0) -> None:
        """Let time pass, and the reclaimer work until nothing is left that is due now."""
        self.clock.sleep(after)
        await self.manager.touches.flush()
        await self.manager.reclaim()

    async def settle(self) -> None:
        """Until all that was evicted is deleted."""
        for seconds in (0, 3600, 3600):
            await self.reclaim(after=seconds)

    async def locations(self, name: str) -> tuple[CacheLocation, ...]:
        """All locations of a block, whatever their state."""
        (entry,) = await self.manager.index.get(spaces.blocks_of(INSTANCE), keys(name))
        assert entry is not None
        return tuple(entry.value.locations)

    async def account(self, name: str) -> Account:
        return await self.manager.index.account(name)

    async def audit(self) -> None:
        """What accounts and ranks say is what follows from the records, and each object has a record."""
        index, catalog = self.manager.index, self.manager.catalog
        charges = []
        names: set[str] = set()
        for instance in catalog.instances.values():
            space = spaces.blocks_of(instance)
            cursor = b""
            while True:
                some, cursor = await index.scan(space, cursor, 500)
                for _, block in some:
                    charges += books.charges(spaces.owner_of(space), None, block)
                if not cursor:
                    break
        names = {name for charge in charges for name in charge.chain} | {f"g/{group}" for group in catalog.groups}
        wanted = charged({}, charges)
        found = await index.accounts(sorted(names))
        for name in names:
            known, due = found.get(name, Account()), wanted.get(name, Account())
            assert (known.used, known.deleting) == (due.used, due.deleting), name


def path_of(location: LocationPlace, part: int = 0) -> tuple[Path, int, int]:
    """File, offset and size of a location's part."""
    uri = urlparse(location.specs[part].uri)
    query = parse_qs(uri.query)
    return Path(unquote(uri.path)), int(query.get("offset", ["0"])[0]), int(query["size"][0])


def write_bytes(location: LocationPlace, content: bytes) -> None:
    for part in range(len(location.specs)):
        path, offset, size = path_of(location, part)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(offset)
            file.write(content.ljust(size, b"\0"))


def read_bytes(location: LocationPlace) -> bytes:
    path, offset, size = path_of(location)
    return path.read_bytes()[offset : offset + size].rstrip(b"\0")


def backup(index: Path, to: Path) -> None:
    """Copy an index that a manager has open."""
    with contextlib.closing(sqlite3.connect(index)) as read, contextlib.closing(sqlite3.connect(to)) as written:
        read.backup(written)


def files(root: Path) -> list[Path]:
    """Objects of parts."""
    return [path for path in root.glob("*/objects/**/*") if path.is_file()]


async def eventually(ask: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Ask until the answer is the one that is wanted."""
    for _ in range(12_000):
        if await ask() == wanted:
            return
        await asyncio.sleep(0.005)
    assert await ask() == wanted
