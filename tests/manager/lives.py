"""A random life of one or two managers at a time of their own, held to what it must be after each step."""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tenantzone_manager import spaces
from tenantzone_manager.core.promises import zone_of
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Moves, Quota, Spec
from tenantzone_manager.core.writing import WriteStatus
from tenantzone_manager.index.meta_index import IndexSettings
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import Settings
from tenantzone_manager.reads.hits import KeyGroup
from tenantzone_manager.reclaims.orphans import OrphanScan
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tests.manager.moving import Killed
from tests.manager.naive import Naive, objects
from tests.manager.playing import Clock, Playing
from tests.reservations import check_kept

SIZES = (100, 4096)
POOL = "shop/chat"
INSTANCES = tuple(
    Instance(f"{owner}.1", "team", 16, (Spec("tp0", size),), pool=POOL) for owner, size in zip("ab", SIZES, strict=True)
)
HEADS = (b"x", b"y", b"z")
LIMIT = 24 * 4096
STORAGES = ("small", "large", "cold")
TYPES = ("FileSystem", "Cold")
PHASES = ("create", "read", "write", "exist")
"""Calls of storages by which a block is copied, in their order."""

instances = st.sampled_from(INSTANCES)
which = st.integers(0, 1)
prompts = st.builds(
    lambda heads, length: [b"".join(heads[: index + 1]) for index in range(min(length, len(heads)))],
    st.lists(st.sampled_from(HEADS), min_size=6, max_size=6),
    st.integers(1, 6),
)
"""Few beginnings, so that they meet: each block's key is that of the one before it and one more letter."""
SHAPE = HitShape(1, (None, 2))
"""Of a model with full attention, and a window of two blocks."""
WINDOW = b"-window"
GROUPS = (KeyGroup(b""), KeyGroup(WINDOW, 2))
seconds = st.sampled_from([1.0, 9.0, 35.0, 120.0, 4000.0])
uppers = st.sampled_from([None, Quota(5 * 4096, 0.2), Quota(4 * 4096)])
rates = st.sampled_from([None, Moves(4096), Moves(100 * 4096)])


def types_of(upper):
    """The quotas by type: the higher type's, if it has one."""
    return {} if upper is None else {"FileSystem": upper}


class Lives(RuleBasedStateMachine):
    """One or two managers at a time of their own."""

    managers_at_once = 1

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.settings = Settings(index=IndexSettings(lock_shards=4, batch_size=4, cached_records=16), orphan_grace=0.0)
        self.naive = Naive(self.clock, self.settings.timing.lease)
        self.group = InstanceGroup("team", STORAGES)
        self.managers: list[Playing] = []

    def backend(self):
        return SqliteBackend(self.folder / "index.db")

    def do(self, work):
        return self.loop.run_until_complete(work)

    def manager(self, number):
        return self.managers[number % len(self.managers)]

    @initialize(slots=st.sampled_from([0, 3]), upper=uppers, moves=rates)
    def begin(self, slots, upper, moves):
        for _ in range(self.managers_at_once):
            self.managers.append(Playing(self.backend(), self.folder, self.clock, self.settings))
            self.do(self.managers[-1].start(with_catalog=False))
        first = self.managers[0]
        self.slots = {"slots_per_file": slots}
        self.put_higher_storages(enabled=True)
        self.do(first.storage("cold", "Cold", more=dict(self.slots)))
        self.group = InstanceGroup("team", STORAGES, types=types_of(upper), moves=moves)
        self.put_group()
        for instance in INSTANCES:
            self.do(first.manager.catalog.register_instance(instance))
        self.refresh()

    def put_higher_storages(self, enabled):
        self.do(self.managers[0].storage("small", limit=8 * 4096, enabled=enabled))
        self.do(self.managers[0].storage("large", more=dict(self.slots), enabled=enabled))
        self.refresh()

    def put_group(self):
        self.do(self.managers[0].manager.catalog.put_group(self.group))
        self.refresh()

    def refresh(self):
        for each in self.managers:
            each.manager.catalog.is_stale = True
            self.do(each.manager.refresh())

    @rule(number=which, instance=instances, prompt=prompts, long=st.booleans())
    def start_write(self, number, instance, prompt, long):
        async def write():
            started = await self.manager(number).start_write(prompt, instance, write_seconds=600.0 if long else 30.0)
            await self.has_begun(instance, prompt, started)

        self.do(write())

    @rule(instance=instances, prompt=prompts)
    def start_write_twice_at_once(self, instance, prompt):
        async def write():
            all_started = await asyncio.gather(
                *(self.manager(number).start_write(prompt, instance) for number in (0, 1))
            )
            taken = [index for started in all_started for index in started.locations]
            assert len(taken) == len(set(taken)), "a block has two writers"
            for started in all_started:
                await self.has_begun(instance, prompt, started)

        self.do(write())

    async def has_begun(self, instance, prompt, started):
        locations = {prompt[index]: location for index, location in started.locations.items()}
        self.naive.begun(instance.name, started.write_id, locations, started.deadline)
        if locations:
            limit = self.group.total.limit
            used = await self.managers[0].account("g/team")
            assert limit is None or used.used <= limit, "a write began beyond the quota"
            assert (await self.managers[0].account("s/small")).used <= 8 * 4096

    @rule(number=which, instance=instances, some=st.lists(prompts, min_size=1, max_size=4))
    def write(self, number, instance, some):
        """What an engine does most of the time."""
        for prompt in some:
            self.start_write(number, instance, prompt, long=False)
            if self.naive.writes and self.naive.writes[-1].instance == instance.name:
                write = self.naive.writes.pop()
                self.naive.finishes(write, list(write.locations))
                finish = self.manager(number).manager.writer.finish_write_cache
                self.do(finish(instance, write.write_id, list(write.locations), []))

    @rule(number=which, instance=instances, prompt=prompts, whole=st.booleans())
    def write_of_two_groups(self, number, instance, prompt, whole):
        names = SHAPE.keys([prompt, [key + WINDOW for key in prompt]], len(prompt))

        async def write():
            started = await self.manager(number).start_write(
                names, instance, parents=SHAPE.parents(len(prompt)), whole=whole
            )
            if whole and started.locations:
                assert not {WriteStatus.NO_ROOM, WriteStatus.NO_PREFIX}.intersection(started.statuses)
            await self.has_begun(instance, names, started)

        self.do(write())

    @rule(number=which, instance=instances, prompt=prompts)
    def read_of_two_groups(self, number, instance, prompt):
        match = self.do(self.manager(number).manager.reader.get_hit(instance, prompt, GROUPS))
        length = match.hit
        needed = [*prompt[:length], *(key + WINDOW for key in prompt[max(0, length - 2) : length])]
        for key, block in zip(needed, match.blocks, strict=True):
            assert block.locations
            for location in block.locations:
                self.naive.served(instance.name, key, location)

    @rule(number=which, instance=instances, prompt=prompts)
    def read_what_is_removed_then(self, number, instance, prompt):
        self.write(number, instance, [prompt])
        self.read(number, instance, prompt, "prefix")
        self.remove(number, instance, prompt)
        self.reclaim(number)

    @rule(number=which, data=st.data())
    def finish(self, number, data):
        if not self.naive.writes:
            return
        write = self.naive.writes.pop(data.draw(st.integers(0, len(self.naive.writes) - 1)))
        failed = data.draw(st.sets(st.sampled_from(sorted(write.locations))))
        written = [key for key in write.locations if key not in failed]
        self.naive.finishes(write, written)
        (instance,) = (each for each in INSTANCES if each.name == write.instance)
        finish = self.manager(number).manager.writer.finish_write_cache
        self.do(finish(instance, write.write_id, written, sorted(failed)))

    @rule(data=st.data())
    def a_writer_dies(self, data):
        if self.naive.writes:
            self.naive.writes.pop(data.draw(st.integers(0, len(self.naive.writes) - 1)))

    @rule(number=which, instance=instances, prompt=prompts, query=st.sampled_from(["key", "prefix", "window"]))
    def read(self, number, instance, prompt, query):
        match = self.do(self.manager(number).match(prompt, instance, query=query, window=2))
        for key, block in zip(prompt[match.first :], match.blocks, strict=False):
            assert block.locations or query == "key"
            for location in block.locations:
                self.naive.served(instance.name, key, location)

    @rule(number=which, instance=instances, prompt=prompts)
    def remove(self, number, instance, prompt):
        self.do(self.manager(number).manager.remover.remove_cache(instance, prompt[-1:]))

    @rule(number=which, instance=instances, where=st.sampled_from(TYPES), to_bytes=st.sampled_from([0, 300, 5 * 4096]))
    def trim(self, number, instance, where, to_bytes):
        self.do(self.manager(number).manager.remover.trim_cache(instance, where, to_bytes=to_bytes))

    @rule(by=seconds)
    def time_passes(self, by):
        self.clock.sleep(by)

    @rule(number=which)
    def reclaim(self, number):
        before = self.accounts()
        self.do(self.manager(number).manager.touches.flush())
        done = self.do(self.manager(number).manager.reclaimer.reclaim())
        if not done.expired and self.group.ttl_seconds is None:
            self.no_floor_was_taken(before)

    @rule(number=which, instance=instances, prompt=prompts)
    def read_often(self, number, instance, prompt):
        for _ in range(3):
            self.read(number, instance, prompt, "prefix")
        self.do(self.manager(number).manager.touches.flush())

    @rule(number=which, by=seconds)
    def move(self, number, by):
        self.clock.sleep(by)
        self.moving(self.manager(number).manager.move(), number)

    @rule(number=which, instance=instances, prompt=prompts)
    def what_is_below_is_read_often_and_moves(self, number, instance, prompt):
        self.put_higher_storages(enabled=False)
        self.write(number, instance, [prompt])
        self.put_higher_storages(enabled=True)
        self.read_often(number, instance, prompt)
        self.move(number, 1.0)

    @rule(number=which, call=st.sampled_from(PHASES), after=st.booleans())
    def a_manager_dies_that_moves(self, number, call, after):
        """What it was at comes back when its time is over, as of any writer that dies."""
        storages = self.manager(number).manager.storages
        real = getattr(storages, call)

        async def killed(*arguments):
            if after:
                await real(*arguments)
            raise Killed

        async def move():
            with contextlib.suppress(Killed):
                await self.manager(number).manager.move()

        setattr(storages, call, killed)
        try:
            self.moving(move(), number)
        finally:
            delattr(storages, call)

    def moving(self, work, number):
        """Do this; no quota is passed by it, no floor taken, and what could be read can be read."""
        before, readable = self.accounts(), self.do(self.readable())
        self.do(self.manager(number).manager.touches.flush())
        self.do(work)
        assert self.do(self.readable()) == readable, "a block went, or came, because it moved"
        self.no_floor_was_taken(before)
        for name, account in self.accounts().items():
            used = before[name].used
            assert account.limit < 0 or account.used <= max(account.limit, used), f"{name} has passed its limit"

    def accounts(self):
        own = {f"i/{each.name}/{where}" for each in INSTANCES for where in TYPES}
        names = {*own, "g/team", *(f"g/team/{where}" for where in TYPES), *(f"s/{name}" for name in STORAGES)}
        return {name: self.do(self.managers[0].account(name)) for name in sorted(names)}

    def no_floor_was_taken(self, before):
        for name, account in self.accounts().items():
            if name.startswith("i/"):
                check_kept(name, reserved=account.reserved, before=before[name].live, after=account.live)

    async def readable(self):
        """Blocks that serve anywhere."""
        found = set()
        for instance in INSTANCES:
            blocks, cursor = [], b""
            while True:
                some, cursor = await self.managers[0].manager.index.scan(spaces.blocks_of(instance), cursor, 500)
                blocks += some
                if not cursor:
                    break
            found |= {(instance.name, key) for key, block in blocks if list(block.serving())}
        return found

    @rule(
        limit=st.sampled_from([None, LIMIT, LIMIT // 4]),
        watermark=st.sampled_from([None, 0.5, 0.9]),
        upper=uppers,
        reserved=st.lists(st.sampled_from([0, 100, 8192]), min_size=2, max_size=2),
        policy=st.sampled_from(["LRU", "LFU"]),
        ttl=st.sampled_from([None, None, 100.0]),
        moves=rates,
        of_zones=st.booleans(),
    )
    def change_the_group(self, limit, watermark, upper, reserved, policy, ttl, moves, of_zones):
        named = [zone_of(each) if of_zones else each.name for each in INSTANCES]
        own = {name: {"FileSystem": InstanceQuota(share)} for name, share in zip(named, reserved, strict=True)}
        self.group = InstanceGroup(
            "team",
            STORAGES,
            total=Quota(limit, None if limit is None else watermark),
            types=types_of(upper),
            eviction_policy=policy,
            ttl_seconds=ttl,
            moves=moves,
            **{"zones" if of_zones else "instances": own},
        )
        self.put_group()

    @rule(number=which)
    def look_for_orphans(self, number):
        """As long after a file was written as its clock says: never, so that no file is too new."""
        manager = self.manager(number).manager
        self.do(OrphanScan(manager.index, manager.storages, lambda: 1e12, 0.0).scan())

    @rule()
    def restart(self):
        for index, each in enumerate(self.managers):
            self.do(each.stop())
            self.managers[index] = Playing(self.backend(), self.folder, self.clock, self.settings)
            self.do(self.managers[index].start(with_catalog=False))

    @invariant()
    def what_was_given_out_can_be_read(self):
        self.naive.check_leases()

    @invariant()
    def the_books_are_right(self):
        if self.managers:
            self.do(self.managers[0].audit())

    def teardown(self):
        try:
            if self.managers:
                self.leave_no_trace()
        finally:
            for each in self.managers:
                self.do(each.stop())
            self.loop.close()
            shutil.rmtree(self.folder)

    def leave_no_trace(self):
        first = self.managers[0]
        self.naive.leases.clear()
        self.clock.sleep(4000)
        self.do(first.settle())
        # A block stays in its type until what comes after it has gone from the other one.
        for where in TYPES * 6:
            for instance in INSTANCES:
                self.do(first.manager.remover.trim_cache(instance, where))
        self.do(first.settle())
        for name, account in self.accounts().items():
            assert (account.used, account.deleting) == (0, 0), name
        for instance in INSTANCES:
            assert self.do(first.manager.index.count(spaces.blocks_of(instance))) == 0
        for name in ("large", "cold"):
            files, _ = self.do(first.manager.index.scan(f"slots/team/{name}", b"", 100))
            assert all(file.free == file.slots for _, file in files)
        self.look_for_orphans(0)
        assert not objects(self.folder)
