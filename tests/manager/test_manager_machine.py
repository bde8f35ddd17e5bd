"""Random histories of managers over SQLite, and of two managers over a Redis that is killed and paused.

Of the managers' answers: no location is served that was not finished, nobody's but the instance's own, and each can be
read until its lease is over; no write begins beyond a quota, no floor is evicted, no prefix gets a hole by eviction.
At the end all is removed, and then no byte is used, no record is there, no slot is taken and no file is left.
"""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tenantzone_manager import spaces
from tenantzone_manager.core.settings import Instance, InstanceGroup, InstanceQuota, Quota, Spec
from tenantzone_manager.index.backend import IndexUnavailable
from tenantzone_manager.index.meta_index import IndexSettings
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import Settings
from tenantzone_manager.orphans import OrphanScan
from tests.manager.naive import Naive, objects
from tests.manager.playing import Clock, Playing
from tests.manager.redis_server import TIMEOUT_SECONDS, RedisServer

SIZES = (100, 4096)
INSTANCES = tuple(Instance(name, "team", 16, (Spec("tp0", size),)) for name, size in zip("ab", SIZES, strict=True))
HEADS = (b"x", b"y", b"z")
LIMIT = 24 * 4096

instances = st.sampled_from(INSTANCES)
which = st.integers(0, 1)
prompts = st.builds(
    lambda heads, length: [b"".join(heads[: index + 1]) for index in range(min(length, len(heads)))],
    st.lists(st.sampled_from(HEADS), min_size=6, max_size=6),
    st.integers(1, 6),
)
"""Few beginnings, so that they meet: each block's key is that of the one before it and one more letter."""
seconds = st.sampled_from([1.0, 9.0, 35.0, 120.0, 4000.0])


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
        self.group = InstanceGroup("team", ("small", "large"))
        self.managers: list[Playing] = []

    def backend(self):
        return SqliteBackend(self.folder / "index.db")

    def do(self, work):
        return self.loop.run_until_complete(work)

    def manager(self, number):
        return self.managers[number % len(self.managers)]

    @initialize(slots=st.sampled_from([0, 3]))
    def begin(self, slots):
        for _ in range(self.managers_at_once):
            self.managers.append(Playing(self.backend(), self.folder, self.clock, self.settings))
            self.do(self.managers[-1].start(with_catalog=False))
        first = self.managers[0]
        self.do(first.storage("small", limit=8 * 4096))
        self.do(first.storage("large", more={"slots_per_file": slots}))
        self.put_group()
        for instance in INSTANCES:
            self.do(first.manager.catalog.register_instance(instance))
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
        self.naive.begun(instance.name, started.write_id, locations)
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

    @rule(number=which, instance=instances, to_bytes=st.sampled_from([0, 300, 5 * 4096]))
    def trim(self, number, instance, to_bytes):
        self.do(self.manager(number).manager.remover.trim_cache(instance, "FileSystem", to_bytes=to_bytes))

    @rule(by=seconds)
    def time_passes(self, by):
        self.clock.sleep(by)

    @rule(number=which)
    def reclaim(self, number):
        before = {each.name: self.do(self.managers[0].account(f"i/{each.name}/FileSystem")) for each in INSTANCES}
        self.do(self.manager(number).manager.touches.flush())
        done = self.do(self.manager(number).manager.reclaimer.reclaim())
        for name, account in before.items():
            after = self.do(self.managers[0].account(f"i/{name}/FileSystem"))
            if not done.expired and self.group.ttl_seconds is None:
                assert after.live >= min(account.live, account.reserved), "a floor was evicted"

    @rule(
        limit=st.sampled_from([None, LIMIT, LIMIT // 4]),
        watermark=st.sampled_from([None, 0.5, 0.9]),
        reserved=st.lists(st.sampled_from([0, 100, 8192]), min_size=2, max_size=2),
        policy=st.sampled_from(["LRU", "LFU"]),
        ttl=st.sampled_from([None, None, 100.0]),
    )
    def change_the_group(self, limit, watermark, reserved, policy, ttl):
        own = {each.name: {"FileSystem": InstanceQuota(share)} for each, share in zip(INSTANCES, reserved, strict=True)}
        total = Quota(limit, None if limit is None else watermark)
        self.group = InstanceGroup(
            "team", ("small", "large"), total=total, instances=own, eviction_policy=policy, ttl_seconds=ttl
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
        for instance in INSTANCES:
            self.do(first.manager.remover.trim_cache(instance, "FileSystem"))
        self.do(first.settle())
        for name in ("g/team", "g/team/FileSystem", "i/a/FileSystem", "i/b/FileSystem", "s/small", "s/large"):
            account = self.do(first.account(name))
            assert (account.used, account.deleting) == (0, 0), name
        for instance in INSTANCES:
            assert self.do(first.manager.index.count(spaces.blocks_of(instance))) == 0
        files, _ = self.do(first.manager.index.scan("slots/team/large", b"", 100))
        assert all(file.free == file.slots for _, file in files)
        self.look_for_orphans(0)
        assert not objects(self.folder)


class RedisLives(Lives):
    """Two managers, and a Redis that fails in the midst."""

    managers_at_once = 2
    server: RedisServer

    def backend(self):
        return RedisBackend(self.server.url, f"{self.folder}/", TIMEOUT_SECONDS)

    @rule(instance=instances, prompt=prompts, kill=st.booleans(), number=which)
    def redis_fails_under_a_write(self, instance, prompt, kill, number):
        """Whether it was begun nobody knows: the writer goes away, and what was reserved must come back."""

        async def write(playing):
            started = await playing.start_write(prompt, instance)
            locations = {prompt[index]: location for index, location in started.locations.items()}
            self.naive.begun(instance.name, started.write_id, locations)

        self.do(self.fail_under(write, kill, number))

    @rule(kill=st.booleans(), number=which, data=st.data())
    def redis_fails_under_a_finish(self, kill, number, data):
        """Whether it was finished nobody knows: it serves, or it expires."""
        if not self.naive.writes:
            return
        write = self.naive.writes.pop(data.draw(st.integers(0, len(self.naive.writes) - 1)))
        (instance,) = (each for each in INSTANCES if each.name == write.instance)
        self.naive.finishes(write, list(write.locations))

        async def finish(playing):
            await playing.manager.writer.finish_write_cache(instance, write.write_id, list(write.locations), [])

        self.do(self.fail_under(finish, kill, number))

    @rule(kill=st.booleans(), number=which)
    def redis_fails_under_the_reclaimer(self, kill, number):
        self.do(self.fail_under(lambda playing: playing.manager.reclaimer.reclaim(), kill, number))

    async def fail_under(self, work, kill, number):
        if kill:
            await self.fault(work(self.manager(number)), kill)
            return
        # One that does not wait long for a Redis that is paused; it may have to wait for one that is not.
        backend = RedisBackend(self.server.url, f"{self.folder}/", timeout_seconds=0.2)
        hurried = Playing(backend, self.folder, self.clock, self.settings)
        with contextlib.suppress(IndexUnavailable):
            await hurried.start(with_catalog=False)
            try:
                await self.fault(work(hurried), kill)
            finally:
                await hurried.stop()

    async def fault(self, work, kill):
        """Do this while Redis fails; whatever is done of it, it ends, and says no more than that the index fails."""
        working = asyncio.create_task(work)
        await asyncio.sleep(0)
        if kill:
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)
        else:
            self.server.pause()
            await asyncio.sleep(0.3)
            self.server.resume()
        with contextlib.suppress(IndexUnavailable):
            await working


def test_random_lives_over_sqlite() -> None:
    examples = max(1, settings().max_examples // 4)
    run_state_machine_as_test(Lives, settings=settings(max_examples=examples, stateful_step_count=30))


def test_random_lives_over_a_redis_that_is_killed_and_paused(redis_server: RedisServer) -> None:
    RedisLives.server = redis_server
    examples = max(1, settings().max_examples // 14)
    run_state_machine_as_test(RedisLives, settings=settings(max_examples=examples, stateful_step_count=25))
