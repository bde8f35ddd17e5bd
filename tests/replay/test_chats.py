"""A generated load: it matches its description, and is the same each time."""

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tenantzone_replay.traces.load import TraceError
from tenantzone_replay.traces.made_up import CONTENT_TOKENS
from tenantzone_replay.traces.mix import mixed, parse_source


def load(text):
    return list(mixed([parse_source(text)]))


def test_each_turn_begins_with_all_that_was_said():
    chats = defaultdict(list)
    for asked in load("chats,seconds=600,chats=0.2"):
        chats[asked.conversation].append(asked)
    longer = [turns for turns in chats.values() if len(turns) > 1]
    assert longer
    for turns in longer:
        for before, after in pairwise(turns):
            assert before.arrival < after.arrival
            assert before.prompt_tokens + before.output_tokens < after.prompt_tokens
            assert after.content[: len(before.content)] == before.content


def test_chats_of_a_tenant_have_their_beginning_in_common_and_no_others():
    requests = load("chats,system=640,seconds=600")
    begins = defaultdict(set)
    for asked in requests:
        begins[asked.tenant].add(asked.content[: 640 // CONTENT_TOKENS])
    assert all(len(each) == 1 for each in begins.values())
    assert len(set.union(*begins.values())) == len(begins)


def test_tenants_ask_for_more_and_for_less_as_is_said():
    skewed = Counter(each.tenant for each in load("chats,skew=1,turns=1,seconds=4000,chats=1"))
    alike = Counter(each.tenant for each in load("chats,skew=0,turns=1,seconds=4000,chats=1"))
    assert skewed["tenant-0"] > 1.6 * skewed["tenant-1"] > 3 * skewed["tenant-7"]
    assert max(alike.values()) < 1.3 * min(alike.values())


def test_tenants_that_ask_for_nearly_nothing_are_no_error():
    assert {each.tenant for each in load("chats,tenants=2000,skew=100,seconds=60")} == {"tenant-0"}


def test_arrivals_are_in_order_and_the_same_for_the_same_seed():
    first, again, other = (load(f"chats,seconds=300,seed={seed}") for seed in (1, 1, 2))
    assert first == again != other
    assert [each.arrival for each in first] == sorted(each.arrival for each in first)
    assert load("chats,seconds=300,rate=2,requests=5")[4].arrival == pytest.approx(first[4].arrival / 2)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("turns=0", "turns= is a number above 0"),
        ("turns=99", "turns= is a number above 0, at most 40"),
        ("seed=-1", "seed= is a whole number of at least 0"),
        ("tenants=two", "tenants= is a whole number above 0, at most 10,000"),
        ("color=1", "chats have tenants="),
    ],
)
def test_what_is_wrong_is_said(option, says):
    with pytest.raises(TraceError, match=says):
        parse_source(f"chats,{option}")
