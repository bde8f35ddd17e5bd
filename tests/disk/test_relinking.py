"""The hits that are restored from the names of a disk's files."""

from hashlib import sha256
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.disk import relinking
from tenantzone_runtime.disk.files.layout import ObjectName, object_name
from tenantzone_runtime.disk.relinking import befores, block_of
from tenantzone_runtime.zones.tiers.hit_shape import HitShape

SHAPE = HitShape(1, (None, 2))
NONCE = b"n" * 12


def find_hits(names, shape):
    """The keys of the hits that are found."""
    return [hit.keys() for hit in relinking.find_hits(names, shape)]


def blocks(*tokens):
    """The hashes of a prompt's blocks; each hash covers everything before it."""
    return [sha256(repr(tokens[: number + 1]).encode()).digest() for number in range(len(tokens))]


def keys(hashes, group):
    return [each + group.to_bytes(4, "big") for each in hashes]


def of_prompt(tokens, shape=SHAPE):
    """The names of the chunks that a hit needs which ends where a prompt does, and its keys."""
    prompt = [keys(blocks(*tokens), group) for group in range(len(shape.windows))]
    before = befores(prompt[0])
    hit = shape.keys(prompt, len(tokens))
    return {ObjectName(key, NONCE, before[block_of(key)]) for key in hit}, hit


def test_a_name_says_what_came_before():
    names, _ = of_prompt("ab")
    for name in names:
        assert object_name(str(name)) == name
    alone = ObjectName(b"k" * 36, NONCE)
    assert object_name(str(alone)) == alone


def test_prompts_are_found_whole():
    short, long, other = (of_prompt(tokens) for tokens in ("abcd", "abcdefgh", "xyz"))
    found = find_hits(short[0] | long[0] | other[0], SHAPE)
    assert sorted(found) == sorted([long[1], short[1], other[1]])
    assert found[0] == long[1]


def test_what_lacks_a_chunk_is_none():
    names, hit = of_prompt("abcdef")
    for key in hit:
        left = {name for name in names if name.key != key}
        assert hit not in find_hits(left, SHAPE)


def test_what_a_longer_one_needs_anyway_is_no_hit_of_its_own():
    names, hit = of_prompt("ab", HitShape(1, (None, 4)))
    assert find_hits(names, HitShape(1, (None, 4))) == [hit]


def test_what_does_not_say_what_came_before_is_of_no_hit():
    names, _ = of_prompt("ab")
    assert find_hits({ObjectName(name.key, name.nonce) for name in names}, SHAPE) == []


def test_names_that_lead_back_to_where_they_come_from_lead_nowhere():
    first, second = blocks("a", "b")
    twin = first[:16] + second[16:]
    before = {first: bytes(16), second: first[:16], twin: second[:16]}
    names = [ObjectName(key, NONCE, before[block_of(key)]) for group in range(2) for key in keys(before, group)]
    assert all(len(hit) <= 3 + 2 for hit in find_hits(names, SHAPE))


def test_where_windows_touch_there_are_as_many_hits_as_there_are_windows():
    turns = [of_prompt(tokens) for tokens in ("abcdefgh"[:length] for length in (2, 4, 6, 8))]
    assert find_hits(set().union(*(names for names, _ in turns)), SHAPE) == [hit for _, hit in turns[::-1]]


prompts = st.lists(st.text("ab", min_size=1, max_size=6), max_size=5)
windows = st.lists(st.none() | st.integers(1, 4), max_size=2).map(lambda more: (None, *more))


@given(prompts, windows, st.integers(0, 8), st.integers(0))
def test_all_that_is_found_is_there_and_each_prompt_that_is_whole_is_found(tokens, kinds, lost, seed):
    shape = HitShape(1, kinds)
    written = [of_prompt(each, shape) for each in tokens]
    names = sorted(set().union(*(each for each, _ in written)), key=str)
    Random(seed).shuffle(names)
    names = names[lost:]
    there = {name.key for name in names}
    hits = find_hits(names, shape)
    assert all(there >= set(hit) for hit in hits)
    assert len({tuple(hit) for hit in hits}) == len(hits)
    covered = set().union(*hits)
    for _, hit in written:
        if there >= set(hit):
            assert covered >= set(hit)
