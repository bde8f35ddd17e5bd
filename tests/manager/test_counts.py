"""Records that are looked at one after the other while they change are counted as if all were looked at in the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_manager.core import books, recounting
from tenantzone_manager.core.draft import Draft, child_steps, with_steps
from tenantzone_manager.core.records import Block, CacheLocation, LocationSpec, State
from tenantzone_manager.core.recounting import Counts
from tenantzone_manager.core.writing import begin, forget, leave

SPACE, OWNER = "blocks/team/chat", books.Owner("chat", "team")
KEYS = [bytes([number * 37 % 251]) for number in range(12)]
TYPES = ("Mooncake", "FileSystem")
PARENTS = (None, 0, 1, 2, 0, 4, 4, None, 7, 7, 9, 10)
"""Of each key, which one comes before it."""

blocks = st.sampled_from(range(len(KEYS)))
writes = st.tuples(st.just("write"), blocks, st.sampled_from(TYPES))
changes = st.tuples(st.sampled_from(["write", "leave", "forget"]), blocks, st.sampled_from(TYPES))
looks = st.tuples(st.just("look"), st.integers(1, 2), st.just(""))


class Records(dict[bytes, Block | None]):
    def __missing__(self, key: bytes) -> None:
        return None


def change(records: Records, what: str, number: int, where: str) -> dict[bytes, Block | None]:
    """Change a block; returns what has changed."""
    draft, key = Draft(records), KEYS[number]
    parent, block = PARENTS[number], records[key]
    if what == "write" and (block is None or where not in block.live_types):
        name = f"{where}{len(block.locations) if block else 0}"
        location = CacheLocation(name, where, where, State.WRITING, 0.0, (LocationSpec("tp0", 10),))
        begin(draft, key, b"" if parent is None else KEYS[parent], 0, location, 0.0)
    elif what == "leave":
        leave(draft, key, lambda each: each.type == where, 0.0)
    elif block is not None:
        forget(draft, key, [each.id for each in block.locations if each.type == where])
    return draft.changes


def put(records: Records, changed: dict[bytes, Block | None]) -> None:
    for key, block in changed.items():
        records[key] = block
        if block is None:
            del records[key]


def look(counts: Counts, records: Records, at_once: int) -> None:
    at = counts.left[-1]
    found = sorted(key for key in records if key > counts.last)[:at_once]
    for key in found:
        block = records[key]
        assert block is not None
        counts.add(at, key, block)
    counts.go_on(found[-1] if len(found) == at_once else b"")


@given(
    st.lists(writes, min_size=12, max_size=20),
    st.sets(blocks, max_size=3),
    st.lists(changes | looks, min_size=8, max_size=30),
)
@pytest.mark.parametrize("at_once", [1, 100])
def test_what_is_counted_is_what_is_there_in_the_end(
    at_once: int,
    before: list[tuple[str, int, str]],
    dropped: set[int],
    meanwhile: list[tuple[str, int, str]],
) -> None:
    records = Records()
    for each in before:
        put(records, change(records, *each))
    for number in dropped:
        records.pop(KEYS[number], None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recounting, "COUNTED_AT_ONCE", at_once)
        counts = Counts([SPACE], lambda _: OWNER)
        for what, number, where in meanwhile:
            if what != "look":
                changed = change(records, what, number, where)
                for key, block in changed.items():
                    counts.change(SPACE, key, records[key], block)
                put(records, changed)
            elif counts.left:
                look(counts, records, number)
        while counts.left:
            look(counts, records, 3)
    used: dict[tuple[str, ...], tuple[int, int]] = {}
    children: dict[bytes, dict[str, int]] = {}
    for block in records.values():
        for charge in books.charges(OWNER, None, block):
            known = used.get(charge.chain, (0, 0))
            used[charge.chain] = known[0] + charge.used, known[1] + charge.deleting
        assert block is not None
        children[block.parent] = with_steps(children.get(block.parent, {}), child_steps(None, block))
    assert {chain: both for chain, both in counts.used.items() if any(both)} == used
    wrong = counts.children.get(SPACE, {})
    for key, block in records.items():
        assert block is not None
        assert with_steps(block.children, wrong.get(key, {})) == children.get(key, {})
