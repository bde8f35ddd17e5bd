"""Random histories of managers over SQLite, and of two managers over a Redis that is killed and paused.

The managers serve only finished locations of the instance itself, and each can be read until its lease is over; no
write or copy begins beyond a quota, no floor is evicted or moved, no prefix gets a hole by eviction, and what moves can
be read all the time.
At the end all is removed, and then no byte is used, no record is there, no slot is taken and no file is left.
"""

import asyncio
import contextlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from hack.harness.redis_server import TIMEOUT_SECONDS, RedisServer
from tenantzone_manager.index.backend import IndexUnavailable
from tenantzone_manager.index.redis import RedisBackend
from tenantzone_manager.storages.backend import StorageError
from tests.manager.lives import INSTANCES, STORAGES, Lives, instances, prompts, which
from tests.manager.moving import know_cold_storages
from tests.manager.playing import Playing

failing_storages = st.sets(st.sampled_from(STORAGES), min_size=1, max_size=2)


class FailingLives(Lives):
    """Storages fail under writes, which are tried elsewhere, and callers that lost an answer repeat their calls."""

    @contextlib.contextmanager
    def failing(self, number, names, call):
        """Makes a call of the named storages fail; they stay available otherwise."""
        storages = self.manager(number).manager.storages
        real = getattr(storages, call)

        async def fail(name, *arguments):
            if name in names:
                raise StorageError("it fails")
            return await real(name, *arguments)

        setattr(storages, call, fail)
        try:
            yield
        finally:
            delattr(storages, call)

    @rule(number=which, instance=instances, prompt=prompts, names=failing_storages, long=st.booleans())
    def start_write_while_storages_fail(self, number, instance, prompt, names, long):
        with self.failing(number, names, "create"):
            self.start_write(number, instance, prompt, long)

    @rule(number=which, instance=instances, prompt=prompts, names=failing_storages)
    def a_first_attempt_outlasts_the_second_one(self, number, instance, prompt, names):
        """Nothing is deleted of it, and the second one ends, goes and is followed by another write before it."""
        with self.failing(number, names, "delete"):
            self.start_write_while_storages_fail(number, instance, prompt, names, long=False)
            self.reclaim(number)
            writes = list(self.naive.writes)
            self.remove(number, instance, prompt)
            self.write(number, instance, [prompt])
            for write in writes:
                self.finish_and_repeat(number, write)
            self.reclaim(number)

    @rule(number=which, data=st.data())
    def repeat_a_finish(self, number, data):
        if self.naive.writes:
            write = self.naive.writes[data.draw(st.integers(0, len(self.naive.writes) - 1))]
            self.finish_and_repeat(number, write)

    def finish_and_repeat(self, number, write):
        if write not in self.naive.writes:
            return
        self.naive.writes.remove(write)
        self.naive.finishes(write, list(write.locations))
        (instance,) = (each for each in INSTANCES if each.name == write.instance)
        finish = self.manager(number).manager.writer.finish_write_cache
        first, again = (self.do(finish(instance, write.write_id, list(write.locations), [])) for _ in range(2))
        assert first == again, "who lost the answer got another one"


class RedisLives(Lives):
    """Two managers, and a Redis that fails in the midst."""

    managers_at_once = 2
    server: RedisServer

    def backend(self):
        return RedisBackend(self.server.url, f"{self.folder}/", TIMEOUT_SECONDS)

    @rule(instance=instances, prompt=prompts, kill=st.booleans(), number=which)
    def redis_fails_under_a_write(self, instance, prompt, kill, number):
        """Whether it was begun is unknown: the writer goes away, and what was reserved must come back."""

        async def write(playing):
            started = await playing.start_write(prompt, instance)
            locations = {prompt[index]: location for index, location in started.locations.items()}
            self.naive.begun(instance.name, started.write_id, locations, started.deadline)

        self.do(self.fail_under(write, kill, number))

    @rule(kill=st.booleans(), number=which, data=st.data())
    def redis_fails_under_a_finish(self, kill, number, data):
        """Whether it was finished is unknown: it serves, or it expires."""
        if not self.naive.writes:
            return
        write = self.naive.writes.pop(data.draw(st.integers(0, len(self.naive.writes) - 1)))
        (instance,) = (each for each in INSTANCES if each.name == write.instance)
        self.naive.finishes(write, list(write.locations))

        async def finish(playing):
            await playing.manager.writer.finish_write_cache(instance, write.write_id, list(write.locations), [])

        self.do(self.fail_under(finish, kill, number))

    @rule(kill=st.booleans(), number=which)
    def redis_fails_under_the_mover(self, kill, number):
        self.do(self.fail_under(lambda playing: playing.manager.move(), kill, number))

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


@pytest.fixture(autouse=True)
def _cold_storages(monkeypatch: pytest.MonkeyPatch) -> None:
    know_cold_storages(monkeypatch)


def test_random_lives_over_sqlite() -> None:
    examples = max(1, settings().max_examples // 4)
    run_state_machine_as_test(Lives, settings=settings(max_examples=examples, stateful_step_count=30))


def test_random_lives_with_storages_that_fail() -> None:
    examples = max(1, settings().max_examples // 8)
    run_state_machine_as_test(FailingLives, settings=settings(max_examples=examples, stateful_step_count=30))


def test_random_lives_over_a_redis_that_is_killed_and_paused(redis_server: RedisServer) -> None:
    RedisLives.server = redis_server
    examples = max(1, settings().max_examples // 14)
    run_state_machine_as_test(RedisLives, settings=settings(max_examples=examples, stateful_step_count=25))
