"""Many blocks in few cells."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.housekeeping.report.picture import Picture

KINDS = "abcdef"
blocks_in_order = st.lists(st.sampled_from(KINDS), min_size=1, max_size=400)


def picture_of(blocks: list[str], blocks_per_cell: int) -> Picture[str]:
    picture = Picture[str]()
    for first in range(0, len(blocks), blocks_per_cell):
        picture.add_cell(Counter(blocks[first : first + blocks_per_cell]))
    return picture


def cells(picture: Picture[str]) -> list[str]:
    return [kind for kind, count in picture.runs for _ in range(count)]


@given(blocks_in_order)
def test_a_cell_of_one_block_shows_that_block(blocks: list[str]):
    assert cells(picture_of(blocks, 1)) == blocks


@given(blocks_in_order, st.integers(1, 50))
def test_every_block_is_counted_once_and_neighbours_that_look_alike_are_one_run(blocks: list[str], each: int):
    picture = picture_of(blocks, each)
    assert picture.blocks == Counter(blocks)
    assert len(cells(picture)) == -(-len(blocks) // each)
    assert all(one != next_one for (one, _), (next_one, _) in zip(picture.runs, picture.runs[1:], strict=False))


@given(st.permutations(KINDS * 30), st.integers(2, 20))
def test_each_kind_has_its_share_of_the_cells_even_if_it_is_nowhere_in_the_majority(blocks: list[str], each: int):
    shown = Counter(cells(picture_of(blocks, each)))
    for kind, count in Counter(blocks).items():
        assert abs(shown[kind] * each - count) <= len(KINDS) * each


def test_a_small_kind_that_is_everywhere_is_shown():
    blocks = ["a", "a", "a", "b"] * 100
    shown = Counter(cells(picture_of(blocks, 4)))
    assert shown == {"a": 75, "b": 25}
