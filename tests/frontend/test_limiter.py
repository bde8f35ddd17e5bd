"""What passes a limiter, and when."""

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.frontend.body.limiter import Limiter


async def turns() -> None:
    """Lets all tasks run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


class Visitors:
    """The names that have entered a limiter."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, weight: int, caller: str | None = None) -> None:
        async def enter() -> None:
            await self.limiter.enter(weight, caller)
            self.inside.append(name)

        self.tasks[name] = asyncio.create_task(enter())
        await turns()

    async def go_away(self, name: str) -> None:
        self.tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[name]
        await turns()


async def test_what_fits_enters_at_once_and_the_rest_in_its_order():
    visitors = Visitors(Limiter(4))
    for name, weight in (("a", 2), ("b", 2), ("c", 3), ("d", 1)):
        await visitors.come(name, weight)
    assert visitors.inside == ["a", "b"]
    visitors.limiter.leave(2)
    await turns()
    assert visitors.inside == ["a", "b"], "no lighter request goes before c"
    visitors.limiter.leave(2)
    await turns()
    assert visitors.inside == ["a", "b", "c", "d"]


async def test_what_is_heavier_than_all_goes_alone():
    visitors = Visitors(Limiter(4))
    for name, weight in (("a", 1), ("heavy", 100), ("b", 1)):
        await visitors.come(name, weight)
    assert visitors.inside == ["a"]
    visitors.limiter.leave(1)
    await turns()
    assert visitors.inside == ["a", "heavy"]
    visitors.limiter.leave(100)
    await turns()
    assert visitors.inside == ["a", "heavy", "b"]


async def test_a_client_that_leaves_while_waiting_holds_up_no_other():
    visitors = Visitors(Limiter(4))
    for name, weight in (("a", 3), ("b", 4), ("c", 1)):
        await visitors.come(name, weight)
    await visitors.go_away("b")
    assert visitors.inside == ["a", "c"]


async def test_who_goes_away_in_the_moment_of_its_turn_gives_it_back():
    visitors = Visitors(Limiter(1))
    for name in ("a", "b", "c"):
        await visitors.come(name, 1)
    visitors.limiter.leave(1)
    await visitors.go_away("b")
    assert visitors.inside == ["a", "c"]


async def test_callers_take_turns_and_each_ones_own_keep_their_order():
    visitors = Visitors(Limiter(1))
    for name, caller in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b")):
        await visitors.come(name, 1, caller)
    for _ in range(5):
        visitors.limiter.leave(1)
        await turns()
    assert visitors.inside == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_no_caller_passes_the_one_whose_turn_it_is_however_light():
    visitors = Visitors(Limiter(4))
    for name, weight, caller in (("a1", 3, "a"), ("b1", 4, "b"), ("c1", 1, "c")):
        await visitors.come(name, weight, caller)
    assert visitors.inside == ["a1"]
    visitors.limiter.leave(3)
    await turns()
    assert visitors.inside == ["a1", "b1"]


async def test_a_turn_is_not_lost_when_the_first_of_a_callers_goes_away():
    visitors = Visitors(Limiter(1))
    for name, caller in (("x", "x"), ("a1", "a"), ("a2", "a"), ("b1", "b")):
        await visitors.come(name, 1, caller)
    await visitors.go_away("a1")
    visitors.limiter.leave(1)
    await turns()
    assert visitors.inside == ["x", "a2"]


@given(st.data())
def test_no_more_is_ever_inside_than_fits_and_in_the_end_everybody_was(data):
    room = data.draw(st.integers(1, 6))
    weights = data.draw(st.lists(st.integers(1, 9), max_size=12))
    callers = [data.draw(st.sampled_from("abc")) for _ in weights]
    gone = data.draw(st.sets(st.integers(0, len(weights))))

    async def live() -> None:
        limiter, entered, inside = Limiter(room), [], 0

        async def visit(number: int, weight: int) -> None:
            nonlocal inside
            await limiter.enter(weight, callers[number])
            inside += min(weight, room)
            assert inside <= room
            entered.append(number)
            await asyncio.sleep(0)
            inside -= min(weight, room)
            limiter.leave(weight)

        tasks = [asyncio.create_task(visit(number, weight)) for number, weight in enumerate(weights)]
        await asyncio.sleep(0)
        for number in gone & set(range(len(tasks))):
            if number not in entered:
                tasks[number].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [each for each in done if each is not None and not isinstance(each, asyncio.CancelledError)]
        for caller in "abc":
            own = [number for number in entered if callers[number] == caller]
            assert own == sorted(own)
        assert inside == 0
        await asyncio.wait_for(limiter.enter(room), 60)

    asyncio.run(live())
