"""The content of a record: its fields, its hash, and what it can never contain."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.journal import record
from tenantzone_runtime.journal.record import (
    BEFORE_FIRST,
    FIRST_PREVIOUS,
    CutOff,
    EngineRun,
    Started,
    digest,
    encode,
    link_of,
    parse,
)
from tenantzone_runtime.zones.audit import events as audit
from tests.journal.journals import chain

EVENTS = [
    Started("0.32.0", 1000, 16),
    CutOff(12, "0" * 64),
    audit.Lifecycle("acme", "declared"),
    audit.Balance("acme", 5, 3, 2, 7),
    audit.Evicted("acme", 3, "reclaim", "burst"),
    audit.Purged("acme", "20261123T070000Z-1a2b3c4d", 3, 2),
    audit.Preempted(None, 1, "due", None),
    audit.Refused("acme", 1, "too_long"),
    audit.Violation("burst", 7, "acme"),
    audit.Lent("acme", "burst", 3, None),
    audit.Repaid("acme", "burst", 3, 1.5, False),
    audit.ConfigApplied(4, "f00d", 2),
    audit.ConfigRefused(None, "not valid JSON"),
    audit.Usage("acme", 10.0, 2.5, 30, 20, 10, 19, 5, 4, 0, 20),
    audit.LoanUsage("acme", "burst", 10.0, 2.5),
    audit.TierUsage("acme", "cpu", 10.0, 2.5),
    audit.TierPurged("acme", "cpu", "20261123T070000Z-1a2b3c4d", 3, 2),
    audit.TierReceipt("acme", "disk", None, 3, 4),
    audit.Lost(3),
]


def test_no_record_can_carry_a_prompt_because_these_are_all_the_kinds_and_fields_there_are():
    envelope = ["seq", "time", "engine", "kind"]
    written = {line["kind"]: list(line) for line in map(json.loads, chain(EVENTS))}
    assert {kind: fields[4:-2] for kind, fields in written.items()} == {
        "started": ["engineVersion", "capacityBlocks", "blockSizeTokens", "format"],
        "lost": ["records"],
        "cut_off": ["bytes", "digest"],
        "lifecycle": ["zone", "change"],
        "balance": ["zone", "granted", "aboveReservation", "released", "held"],
        "evicted": ["zone", "blocks", "reason", "beneficiary"],
        "purged": ["zone", "id", "evicted", "withdrawn"],
        "preempted": ["zone", "requests", "reason", "beneficiary"],
        "refused": ["zone", "requests", "reason"],
        "violation": ["zone", "blockId", "owner"],
        "lent": ["lender", "borrower", "blocks", "dueInSeconds"],
        "repaid": ["lender", "borrower", "blocks", "afterSeconds", "overdue"],
        "config_applied": ["generation", "configHash", "zones"],
        "config_refused": ["generation", "error"],
        "usage": [
            *("zone", "countingSince", "blockSeconds", "promptTokens", "cachedTokens", "generationTokens"),
            *("computedFirstTokens", "recomputedTokens", "rejectedDraftTokens", "loadedTokens", "hitTokens"),
        ],
        "loan_usage": ["lender", "borrower", "countingSince", "blockSeconds"],
        "tier_usage": ["zone", "tier", "countingSince", "byteSeconds"],
        "tier_purged": ["zone", "tier", "id", "evicted", "withdrawn"],
        "tier_receipt": ["zone", "tier", "id", "chunks", "files"],
    }
    for fields in written.values():
        assert fields[:4] == envelope
        assert fields[-2:] == ["previous", "hash"]


def test_every_kind_of_event_is_in_the_list_above():
    assert {type(event) for event in EVENTS} == set(record._NAMES)


def test_a_record_reads_as_it_was_written():
    line, link = encode(audit.Evicted("acme", 3, "own", None), BEFORE_FIRST, engine="e", at=5.25, offset=1000.0)
    assert json.loads(line) == {
        "seq": 0,
        "time": "1970-01-01T00:16:45.250Z",
        "engine": "e",
        "kind": "evicted",
        "zone": "acme",
        "blocks": 3,
        "reason": "own",
        "beneficiary": None,
        "previous": FIRST_PREVIOUS,
        "hash": link.hash,
    }
    assert link.seq == 0


def test_since_when_a_counter_counts_is_written_in_unix_time():
    (line,) = chain([audit.Usage("acme", 1.5, 0.0, *[0] * 8)], at=2.0)
    assert json.loads(line)["countingSince"] == "1970-01-01T00:00:01.500Z"


def test_an_engine_run_is_named_by_its_pod_and_its_start():
    assert EngineRun("llama-0", 0.0015, "", 1, 1).name == "llama-0@1970-01-01T00:00:00.002Z"


def test_the_hash_is_that_of_the_canonical_json_without_it():
    (line,) = chain([audit.Refused("ä", 3, "unbound")])
    canonical = (
        '{"engine":"engine-0@x","kind":"refused","previous":"' + "0" * 64 + '","reason":"unbound","requests":3,"seq":0,'
        '"time":"1970-01-01T00:00:00.000Z","zone":"ä"}'
    )
    assert json.loads(line)["hash"] == hashlib.sha256(canonical.encode()).hexdigest()


def test_a_tool_that_writes_the_same_json_in_another_way_does_not_break_it():
    (line,) = chain([audit.Usage("acme", 0.0, 3.0, *[1] * 8)])
    content = json.loads(line)
    again = json.dumps(dict(reversed(content.items())) | {"blockSeconds": 3.0}, indent=1)
    assert link_of(parse(again.encode())) == link_of(parse(line))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"5",
        b"[]",
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b"\xff",
        b"[" * 100_000,
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_a_line_that_is_no_json_object_or_could_be_read_in_two_ways_is_none(line):
    with pytest.raises(ValueError):  # noqa: PT011
        parse(line)


@given(st.text(max_size=2000), st.text(st.characters(categories=["Cs", "Cc", "Zl"])))
def test_any_text_fits_on_one_line_and_is_cut_to_a_bound(text, odd):
    (line,) = chain([audit.ConfigRefused(None, odd + text)])
    assert line.count(b"\n") == 1
    read = parse(line)
    assert len(read["error"]) <= 1000
    assert digest(read) == read["hash"]
