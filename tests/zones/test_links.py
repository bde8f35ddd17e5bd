"""Chunks that are useful only together: when one goes, the rest of its hit goes too, unless another hit uses it."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.tiers.links import Links


def links(*hits):
    links = Links()
    for hit in hits:
        links.link(hit)
    return links


def test_with_one_chunk_of_a_hit_all_others_are_of_no_use():
    assert links([1, 2, 3]).unlink([2]) == [1, 3]


def test_what_another_hit_needs_is_of_use():
    both = links([1, 2, 3], [1, 2, 4, 5])
    assert both.unlink([3]) == []
    assert sorted(both.unlink([5])) == [1, 2, 4]


def test_all_hits_go_with_what_they_have_in_common():
    assert sorted(links([1, 2, 3], [1, 2, 4, 5], [6, 7]).unlink([1])) == [2, 3, 4, 5]


def test_a_hit_that_is_noted_again_is_the_same():
    twice = links([1, 2, 3], [1, 2, 3])
    assert twice.unlink([1]) == [2, 3]
    assert list(twice) == []


def test_a_chunk_that_was_of_a_hit_may_be_of_another():
    again = links([1, 2])
    again.unlink([1])
    again.link([3, 2])
    assert again.unlink([2]) == [3]


class Chunk(int):
    """Counts how often any chunk is looked at."""

    looks = 0

    def __hash__(self):
        Chunk.looks += 1
        return int(self)


def test_what_thousands_have_in_common_goes_as_fast_as_it_is_long():
    common, prompts = [Chunk(number) for number in range(200)], 200
    many = links(*([*common, Chunk(1_000 + number)] for number in range(prompts)))
    Chunk.looks = 0
    assert len(many.unlink([common[100]])) == len(common) + prompts - 1
    assert Chunk.looks < 10 * (len(common) + prompts), "not each time again for each prompt"


@st.composite
def histories(draw):
    """Hits, some with a common beginning, and the chunks that go then, one by one."""
    hits = []
    for _ in range(draw(st.integers(1, 8))):
        begun = draw(st.sampled_from([[], *hits]))
        begun = begun[: draw(st.integers(0, len(begun)))]
        own = draw(st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=6))
        hits.append(list(dict.fromkeys([*begun, *own])))
    return hits, draw(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=6))


@given(histories())
def test_what_is_of_no_use_is_what_all_hits_have_lost(history):
    hits, goings = history
    linked = links(*hits)
    for gone in goings:
        useful = {chunk for hit in hits for chunk in hit}
        hits = [hit for hit in hits if not set(gone) & set(hit)]
        left = {chunk for hit in hits for chunk in hit}
        assert sorted(linked.unlink(gone)) == sorted(useful - left - set(gone))
        assert set(linked) == left
        linked.check()
