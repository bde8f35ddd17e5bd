"""The remembered state of prompts, against a model that keeps them whole."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.shared.prompts import RecentPrompts, WholePrompts, within

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=12)


def hashes(tokens):
    """Hashes as vLLM makes them: each covers all before it."""
    return [bytes(tokens[: end + 1]) + b"h" for end in range(len(tokens))]


def whole(recent, tenant):
    return list(WholePrompts(recent.links(tenant)))


@given(PROMPTS)
def test_prompts_come_whole_the_last_one_first_and_beginnings_of_others_not(prompts):
    recent = RecentPrompts()
    for tokens in prompts:
        recent.note("acme", hashes(tokens))
    reported = whole(recent, "acme")
    last_first = [hashes(tokens) for tokens in reversed(prompts)]
    assert all(each in last_first for each in reported)
    assert [last_first.index(each) for each in reported] == sorted(last_first.index(each) for each in reported)
    for each in last_first:
        assert any(other[: len(each)] == each for other in reported)
    assert len({tuple(each) for each in reported}) == len(reported)


@given(PROMPTS, st.integers(0, 20))
def test_what_is_forgotten_first_was_used_first_and_of_a_prompt_its_end(prompts, blocks):
    recent = RecentPrompts()
    for tokens in prompts:
        recent.note("acme", hashes(tokens))
    by_use = list(dict.fromkeys(block for tokens in reversed(prompts) for block in hashes(tokens)))
    recent.trim("acme", blocks)
    reported = whole(recent, "acme")
    assert {block for each in reported for block in each} == set(by_use[:blocks])
    assert all(each == hashes(list(each[-1][:-1])) for each in reported), "each from its beginning on"
    assert recent.tenants == (["acme"] if reported else [])


def test_each_tenant_has_its_own():
    recent = RecentPrompts()
    recent.note("acme", hashes([1, 2]))
    recent.note("burst", hashes([1, 2]))
    recent.note("calm", [])
    recent.forget("acme")
    assert whole(recent, "acme") == []
    assert whole(recent, "burst") == [hashes([1, 2])]
    assert recent.tenants == ["burst"]


@given(PROMPTS, st.integers(0, 30))
def test_prompts_are_cut_where_they_name_too_many_blocks(prompts, blocks):
    reported = list(within(prompts, blocks))
    assert sum(map(len, reported)) == min(blocks, sum(map(len, prompts)))
    assert all(each == whole[: len(each)] for each, whole in zip(reported, prompts, strict=False))


def test_what_prompts_have_in_common_takes_no_more_memory_than_once():
    recent = RecentPrompts()
    begun = [f"b-{number}".encode() for number in range(2000)]
    for number in range(1000):
        recent.note("acme", [*begun, f"e-{number}".encode()])
    links = recent.links("acme")
    tracemalloc.start()
    try:
        prompts = WholePrompts(links)
        assert [len(each) for each in prompts] == [2001] * 1000
        assert [each[-1] for each in reversed(prompts)] == [f"e-{number}".encode() for number in range(1000)]
        assert (len(prompts), tracemalloc.get_traced_memory()[1] < 2**20) == (1000, True)
    finally:
        tracemalloc.stop()
