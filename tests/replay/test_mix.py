"""Loads made from others, and tenants by rule."""

import json
import os
from collections import Counter
from itertools import pairwise

import pytest

from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.traces.load import Asked, TraceError
from tenantzone_replay.traces.mix import mixed, parse_source
from tenantzone_replay.traces.tenants import with_tenants


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 1000 * number, "input_length": 1024, "output_length": 8, "hash_ids": [0, 10 + number]}
        for number in range(10)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def load(*sources):
    return list(mixed(parse_source(str(source)) for source in sources))


def test_a_rate_makes_it_denser_and_a_shift_later(trace):
    assert [each.arrival for each in load(f"{trace},rate=2,shift=100,requests=3")] == [100.0, 100.5, 101.0]


def test_a_burst_repeats_requests_with_texts_of_their_own(trace):
    requests = load(f"{trace},burst=2:3:4")
    assert Counter(each.arrival for each in requests) == {float(at): 4 if 2 <= at < 5 else 1 for at in range(10)}
    assert len({each.content for each in requests}) == len(requests)
    assert len({each.content[0] for each in requests if each.arrival == 2.0}) == 4


def test_several_traces_come_in_order_and_share_nothing(trace):
    requests = load(trace, f"{trace},shift=0.5,tenant=other")
    assert len(requests) == 20
    assert all(before.arrival <= after.arrival for before, after in pairwise(requests))
    of_first = {each for request in requests if not request.tenant for each in request.content}
    of_other = {each for request in requests if request.tenant == "other" for each in request.content}
    assert not of_first & of_other


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("rate=0", "rate= is a number above 0"),
        ("shift=inf", "shift= is seconds from 0 to 34,560,000"),
        ("requests=x", "requests= is a whole number from 1"),
        ("requests=1" + "0" * 30, "requests= is a whole number from 1"),
        ("tenant=", "tenant= is a name"),
        ("burst=1", "burst= is START:SECONDS:TIMES"),
        ("burst=1:2", "burst= is START:SECONDS:TIMES"),
        ("burst=nan:nan:3", "burst= is START:SECONDS:TIMES"),
        ("burst=0:inf:3", "burst= is START:SECONDS:TIMES"),
        ("speed=3", "expected format=, rate="),
        ("format=x", "format= is one of moon"),
    ],
)
def test_what_is_wrong_with_a_source_is_said(trace, option, says):
    for source in (trace, "chats") if not option.startswith("speed") else (trace,):
        with pytest.raises(TraceError, match=f"can't be understood: {says}"):
            parse_source(f"{source},{option}")


@pytest.mark.parametrize(
    ("path", "says"),
    [("nowhere", "nowhere: there is no such file"), ("x" * 5000, "File name too long"), ("pipe", "neither a file nor")],
    ids=["no file", "a name of 5,000 letters", "a pipe"],
)
def test_what_can_not_be_read_again_and_again_is_named(tmp_path, monkeypatch, path, says):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(TraceError, match=says):
        parse_source(path)


def test_who_is_not_named_gets_a_tenant_by_conversation():
    asked = [Asked(0.0, 10, 1, conversation=number % 1000) for number in range(4000)]
    tenants = [each.tenant for each in with_tenants(asked, 4, "zipf")]
    assert tenants[:1000] == tenants[1000:2000], "a conversation has one tenant"
    shares = Counter(tenants)
    assert shares["tenant-0"] > 1.6 * shares["tenant-1"] > shares["tenant-3"] > 0
    equal = Counter(each.tenant for each in with_tenants(asked, 4, "equal"))
    assert max(equal.values()) < 1.1 * min(equal.values())
    named = next(iter(with_tenants([Asked(0.0, 1, 1, tenant="acme")], 4, "zipf")))
    assert named.tenant == "acme"


def test_a_profile_adds_up_what_is_asked_for(trace):
    found = profile(with_tenants(load(trace), 1, "equal"))
    assert (found.requests, found.seconds, found.longest, found.content_tokens) == (10, 9.0, 1032, 512)
    assert found.demand["tenant-0"].prompt_tokens == 10 * 1024
