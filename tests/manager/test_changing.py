"""Changes of many blocks at once, and what follows for those before them."""

from tenantzone_manager.reclaims.removing import AT_ONCE
from tests.manager.playing import INSTANCE, SIZE, Playing, keys, prompt

BRANCHES = 100
"""Prompts of two blocks: the second ones change together, and the first ones stay."""


def branch(number: int) -> list[bytes]:
    return keys(f"first{number}", f"second{number}")


async def records(playing: Playing) -> int:
    return await playing.manager.index.count("blocks/team/chat")


async def test_the_ends_of_many_prompts_go_at_once(playing: Playing) -> None:
    for number in range(BRANCHES):
        await playing.write(branch(number))
    removed = await playing.manager.remover.remove_cache(INSTANCE, [branch(number)[1] for number in range(BRANCHES)])
    assert removed.blocks == BRANCHES
    await playing.settle()
    assert await records(playing) == BRANCHES
    assert await playing.hits(branch(0)) == 1


async def test_many_writers_that_die_at_once_leave_nothing(playing: Playing) -> None:
    for number in range(BRANCHES):
        await playing.write(branch(number)[:1])
        await playing.start_write(branch(number))
    await playing.settle()
    assert await records(playing) == BRANCHES
    assert (await playing.account("g/team")).used == BRANCHES * SIZE


async def test_a_long_prompt_goes_whose_beginning_has_gone_before(playing: Playing) -> None:
    """What is left of its beginning are places, which go with what hangs on them: all of them in one commit."""
    names = prompt("a", 6 * AT_ONCE)
    started = await playing.start_write(names)
    await playing.manager.writer.finish_write_cache(INSTANCE, started.write_id, names, [])
    await playing.manager.remover.remove_cache(INSTANCE, names[:-1])
    await playing.settle()
    assert await records(playing) == len(names)
    await playing.manager.remover.remove_cache(INSTANCE, names[-1:])
    await playing.settle()
    assert await records(playing) == 0
