"""How reads are counted of late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantzone_manager.core.heat import HALF_LIFE_SECONDS, HOT, at_least_as, frequency, heat_at, used, with_uses_of
from tenantzone_manager.core.records import Block, decode_block, encode_block

NOW = 1_000_000.0

ages = st.floats(0, 10 * HALF_LIFE_SECONDS)
reads = st.lists(st.tuples(ages, st.integers(0, 50)), max_size=8)


def read_at(times: list[tuple[float, int]]) -> Block:
    block = Block()
    for age, count in sorted(times, reverse=True):
        block = used(block, NOW - age, count)
    return block


def test_a_read_counts_half_as_much_after_each_half_life() -> None:
    block = used(Block(), NOW, 8)
    assert [heat_at(block, NOW + lives * HALF_LIFE_SECONDS) for lives in range(4)] == [8, 4, 2, 1]


def test_three_reads_within_two_minutes_are_hot_and_two_are_not() -> None:
    assert heat_at(read_at([(120, 1), (60, 1), (0, 1)]), NOW) >= HOT
    assert heat_at(read_at([(0, 1), (0, 1)]), NOW) < HOT


@given(times=reads)
def test_it_is_the_sum_of_what_each_read_counts(times: list[tuple[float, int]]) -> None:
    block = read_at(times)
    exact = sum(count * 0.5 ** (age / HALF_LIFE_SECONDS) for age, count in times)
    # A record has hundredths, and is cut off whenever it is written.
    assert exact - 0.01 * len(times) <= heat_at(block, NOW) + 1e-9
    assert heat_at(block, NOW) <= exact + 1e-9
    assert block.hits == sum(count for _, count in times)


@given(one=reads, other=reads)
def test_a_block_that_goes_leaves_its_heat_to_the_one_before_it(
    one: list[tuple[float, int]], other: list[tuple[float, int]]
) -> None:
    first, second = read_at(one), read_at(other)
    both, warmest = with_uses_of(first, second), at_least_as(first, second)
    total = heat_at(first, NOW) + heat_at(second, NOW)
    assert heat_at(both, NOW) == pytest.approx(total, abs=0.02)
    assert heat_at(warmest, NOW) == pytest.approx(max(heat_at(first, NOW), heat_at(second, NOW)), abs=0.02)
    assert both.used_at == warmest.used_at == max(first.used_at, second.used_at)
    assert (both.hits, warmest.hits) == (first.hits + second.hits, first.hits)


def test_a_note_that_comes_late_turns_no_time_back() -> None:
    block = used(used(Block(), NOW, 1), NOW - 100, 1)
    assert (block.used_at, block.hits) == (NOW, 2)


def test_records_of_before_are_cold() -> None:
    """They end before the heat, and before the field that says that a block stands next to others."""
    array = encode_block(Block(b"p", 3, NOW, 7))
    assert array[0] == 0x98
    before = bytes([0x96]) + array[1:-2]
    assert decode_block(before) == Block(b"p", 3, NOW, 7)


@given(hits=st.integers(0, 2**40), used_at=st.floats(0, 2e9))
def test_a_use_counts_for_lfu_and_twice_as_many_make_up_for_a_half_life(hits: int, used_at: float) -> None:
    block = Block(used_at=used_at, hits=hits)
    # As precise as a double is at this time.
    slack = 1e-8
    assert frequency(replace(block, hits=hits + 1)) >= frequency(block)
    twice = replace(block, hits=2 * hits + 1)
    assert abs(frequency(twice) - frequency(replace(block, used_at=used_at + HALF_LIFE_SECONDS))) <= slack
