"""A clock that jumps ahead and comes back leaves nothing behind that is due hours later."""

import pytest

from tenantzone_manager.core import books
from tenantzone_manager.core.writing import WriteStatus
from tenantzone_manager.timing import SteadyClock
from tests.manager.playing import Playing, keys

DAY = 86_400.0


class SetClock:
    """The system's clock, and one that is never set."""

    def __init__(self) -> None:
        self.since_boot, self.offset = 100.0, 1e9
        self.steady = SteadyClock(lambda: self.since_boot + self.offset, lambda: self.since_boot)

    def pass_(self, seconds: float) -> float:
        """Lets time pass; returns by how much the steady clock is ahead of a clock that was never set."""
        for _ in range(int(seconds * 10)):
            self.since_boot += 0.1
            said = self.steady()
        return said - self.since_boot - 1e9


@pytest.mark.parametrize("jump", [-DAY, -3.0, 3.0, DAY])
def test_a_jump_is_followed_if_it_lasts_for_a_minute(jump: float) -> None:
    clock = SetClock()
    assert clock.pass_(10) == pytest.approx(0)
    clock.offset += jump
    assert clock.pass_(59) == pytest.approx(0)
    clock.offset -= jump
    assert clock.pass_(100) == pytest.approx(0), "it came back"
    clock.offset += jump
    assert clock.pass_(59) == pytest.approx(0)
    clock.offset += jump
    assert clock.pass_(59) == pytest.approx(0), "it was set again"
    assert clock.pass_(2) == pytest.approx(2 * jump)


def test_a_clock_that_is_set_by_little_is_followed_at_once() -> None:
    clock = SetClock()
    clock.offset += 0.2
    assert clock.pass_(1) == pytest.approx(0.2)


@pytest.mark.parametrize("jump", [7200.0, 30 * DAY])
async def test_what_was_begun_and_removed_by_a_wrong_clock_is_due_as_by_a_right_one(
    playing: Playing, jump: float
) -> None:
    """As by a manager before this one."""
    begun, removed = keys("begun"), keys("removed")
    instance = await playing.manager.catalog.instance("chat")
    playing.clock.now += jump
    await playing.start_write(begun)
    await playing.write(removed)
    await playing.manager.remover.remove_cache(instance, removed)
    playing.clock.now -= jump
    await playing.reclaim()
    (status,) = (await playing.start_write(begun)).statuses
    assert status is WriteStatus.WRITING, "its writer has its time"
    timing = playing.manager.settings.timing
    await playing.reclaim(after=timing.write + 1)
    (status,) = (await playing.start_write(begun, write_seconds=1.0)).statuses
    assert status is WriteStatus.WRITE
    await playing.reclaim(after=timing.write + 1)
    await playing.settle()
    assert (await playing.account(books.group_chain("team", "FileSystem")[0])).used == 0
