"""The chunks of a prompt that must be there, by group, for the prompt to be found again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.tiers.hit_shape import HitShape

MIXED = HitShape(16, (2, None, 3))
shapes = st.builds(
    HitShape, st.integers(1, 20), st.lists(st.none() | st.integers(1, 6), max_size=4).map(lambda more: (None, *more))
)


def prompt(length):
    """The keys of a prompt of `length` chunks, in the groups of `MIXED`."""
    return [[f"{group}{number}" for number in range(length)] for group in "abc"]


def test_full_attention_needs_all_from_the_beginning_and_windows_their_last():
    assert MIXED.keys(prompt(5), 64) == ["b0", "b1", "b2", "b3", "a2", "a3", "c1", "c2", "c3"]


def test_hits_begin_alike_as_far_as_their_prompts_do():
    wide = HitShape(16, (None, 2, None))
    short, long = wide.keys(prompt(5), 48), wide.keys(prompt(5), 80)
    assert short == ["a0", "c0", "a1", "c1", "a2", "c2", "b1", "b2"]
    assert long[:6] == short[:6]


def test_a_prompt_that_is_shorter_than_a_window_is_needed_whole():
    assert MIXED.keys(prompt(5), 16) == ["b0", "a0", "c0"]


def test_a_hit_ends_where_a_chunk_does():
    assert MIXED.end(63) == 48
    assert MIXED.keys(prompt(5), 63) == MIXED.keys(prompt(5), 48)


@pytest.mark.parametrize("end", [0, 15, 96])
def test_there_is_none_in_the_first_chunk_or_beyond_what_is_there(end):
    assert MIXED.keys(prompt(5), end) == []


def test_one_group_has_no_links():
    alone = HitShape(16, (None,))
    assert not alone.is_linked
    assert MIXED.is_linked
    assert (alone.chunks(33), alone.tokens_in(3)) == (3, 48)


@given(shapes, st.integers(0, 200))
def test_as_many_tokens_are_loaded_as_chunks_may_be(shape, chunks):
    tokens = shape.tokens_in(chunks)
    assert shape.chunks(tokens) <= chunks
    assert shape.chunks(tokens + 1) > chunks


@given(shapes, st.integers(1, 30))
def test_a_hit_is_as_large_as_is_reckoned(shape, length):
    end = length * shape.chunk_tokens
    keys = shape.keys([[(group, number) for number in range(length)] for group in range(len(shape.windows))], end)
    assert len(set(keys)) == len(keys) == shape.chunks(end)


@st.composite
def found(draw):
    """A shape, a prompt in its groups, the chunks of it that are there, and the range of the lookup."""
    shape, length = draw(shapes), draw(st.integers(0, 12))
    prompt = [[(group, number) for number in range(length)] for group in range(len(shape.windows))]
    keys = [key for keys in prompt for key in keys]
    lacking = draw(st.sets(st.sampled_from(keys), max_size=6)) if keys else set()
    begin = draw(st.integers(0, length))
    return shape, prompt, set(keys) - lacking, begin, draw(st.integers(begin, 14))


@given(found())
def test_the_longest_hit_is_the_last_place_where_all_is_there(drawn):
    shape, prompt, there, begin, end = drawn
    size = shape.chunk_tokens
    ends = [place for place in range(begin + 1, end + 1) if shape.keys(prompt, place * size, begin * size)]
    whole = [place for place in ends if there.issuperset(shape.keys(prompt, place * size, begin * size))]
    longest = max(whole, default=begin) * size
    assert shape.longest(prompt, begin * size, end * size, there.__contains__) == longest


def test_what_is_where_a_hit_is_used_is_not_needed():
    assert MIXED.keys(prompt(5), 80, 32) == ["b2", "b3", "b4", "a3", "a4", "c2", "c3", "c4"]
    assert MIXED.keys(prompt(5), 80, 64) == ["b4", "a4", "c4"]
    assert MIXED.keys(prompt(5), 80, 80) == []
