"""Each trace format is read as its source specifies, and errors are reported with their place."""

import gzip
import json
import time
from itertools import islice
from pathlib import Path

import pytest

from tenantzone_replay.traces.load import TraceError
from tenantzone_replay.traces.readers import READERS, guess_format

MOONCAKE = Path(__file__).parents[2] / "bench/traces/mooncake_conversation.jsonl.gz"


def read(path, *lines):
    text = "".join(line if isinstance(line, str) else json.dumps(line) for line in lines for line in (line, "\n"))
    path.write_text(text)
    return list(READERS[guess_format(path)](path))


def test_the_mooncake_trace_is_read(tmp_path):
    assert guess_format(MOONCAKE) == "mooncake"
    first, second = islice(READERS["mooncake"](MOONCAKE), 2)
    assert (first.arrival, first.prompt_tokens, first.output_tokens) == (0.0, 6758, 500)
    assert first.content == tuple(range(14))
    assert first.known_tokens == 6758, "the last part is not all known"
    assert first.conversation == 1
    assert second.conversation == 14
    assert first.tenant == ""


def test_turns_of_a_chat_of_qwen_are_one_conversation(tmp_path):
    turn = {"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 40, "output_length": 5, "turn": 1}
    requests = read(
        tmp_path / "qwen.jsonl",
        turn | {"hash_ids": [1, 2, 3]},
        turn | {"chat_id": 9, "timestamp": 2.0, "hash_ids": [8]},
        turn | {"chat_id": 12, "parent_chat_id": 7, "timestamp": 9.0, "input_length": 64, "hash_ids": [1, 2, 4, 5]},
    )
    assert [each.conversation for each in requests] == [7, 9, 7]
    assert [each.content_tokens for each in requests] == [16] * 3
    assert requests[0].known_tokens == 40


def test_azures_times_have_seven_digits_and_begin_at_the_first(tmp_path):
    requests = read(
        tmp_path / "azure.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:50.9951690,396,109",
    )
    assert [(each.prompt_tokens, each.output_tokens) for each in requests] == [(374, 44), (396, 109)]
    assert requests[1].arrival == pytest.approx(4.314579)
    assert not requests[0].content
    assert requests[0].conversation != requests[1].conversation


def test_burstgpt_goes_on_with_a_session(tmp_path):
    requests = read(
        tmp_path / "burst.csv",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,a,1,ChatGPT,32,16,48,Conversation log",
        "6,b,1,ChatGPT,32,16,48,Conversation log",
        "7,a,1,ChatGPT,80,16,96,Conversation log",
    )
    first, other, second = requests
    assert second.content[:3] == first.content, "what was said before, with the answer"
    assert other.content[0] != first.content[0]
    assert second.arrival == 2.0


def test_users_and_sessions_are_tenants_and_conversations(tmp_path):
    asked = {"user_id": "acme", "session_id": "s", "timestamp": 10.0, "prompt_tokens": 64, "output_tokens": 16}
    requests = read(
        tmp_path / "any.jsonl",
        asked,
        asked | {"user_id": "burst"},
        asked | {"timestamp": 11.0, "prompt_tokens": 96},
        asked | {"timestamp": 12.0, "prompt_tokens": 32},
    )
    assert [each.tenant for each in requests] == ["acme", "burst", "acme", "acme"]
    first, other, second, shorter = requests
    assert second.content[:5] == first.content
    assert other.content[0] != first.content[0], "another user's session of the same name"
    assert shorter.content[0] != first.content[0], "a prompt that is shorter than what was said begins anew"


ASKED = {"timestamp": 10.0, "input_length": 64, "output_length": 16}


@pytest.mark.parametrize(
    ("line", "tenant"),
    [
        (ASKED | {"user_id": 0, "session_id": 0}, "0"),
        (ASKED | {"user_id": 0, "chat_id": 7, "parent_chat_id": -1}, "0"),
        (ASKED | {"user_id": "", "session_id": 0}, ""),
        (ASKED | {"user_id": None, "session_id": 0}, ""),
    ],
)
def test_zero_is_a_name_and_nothing_is_none(tmp_path, line, tenant):
    (first, second) = read(tmp_path / "any.jsonl", line, line)
    assert first.tenant == second.tenant == tenant
    assert first.conversation == second.conversation
    assert bool(first.content) == ("chat_id" not in line)


def test_mooncakes_users_are_tenants_if_it_has_some(tmp_path):
    path = tmp_path / "any.jsonl"
    path.write_text(json.dumps(ASKED | {"user_id": 0}))
    assert [each.tenant for each in READERS["mooncake"](path)] == ["0"]


def test_users_with_ids_of_what_they_ask_are_no_trace_of_mooncakes(tmp_path):
    lines = [ASKED | {"user_id": "a", "timestamp": when, "hash_ids": [1, 2], "block_size": 32} for when in (10, 20)]
    assert [(each.arrival, each.content_tokens) for each in read(tmp_path / "any.jsonl", *lines)] == [(0, 32), (10, 32)]


@pytest.mark.parametrize(
    ("line", "unit"),
    [(ASKED | {"hash_ids": [1]}, 1000), (ASKED | {"chat_id": 7, "parent_chat_id": -1}, 1)],
    ids=["mooncake", "qwen"],
)
def test_times_of_a_wall_clock_begin_at_the_first(tmp_path, line, unit):
    lines = [line | {"timestamp": unit * (1_764_000_000 + number)} for number in range(3)]
    assert [each.arrival for each in read(tmp_path / "any.jsonl", *lines)] == [0.0, 1.0, 2.0]


def test_kv_events_are_requests_of_what_had_to_be_computed(tmp_path):
    stored = {"type": "BlockStored", "parent_block_hash": None, "block_size": 16, "token_ids": [], "lora_id": None}
    requests = read(
        tmp_path / "events.jsonl",
        [100.0, [stored | {"block_hashes": [11, 12], "extra_keys": [["acme-salt"], None]}]],
        {"ts": 103.0, "events": [{"type": "BlockRemoved", "block_hashes": [12]}, stored | {"block_hashes": ["x"]}]},
        [104.0, [stored | {"block_hashes": [13], "parent_block_hash": 11}]],
    )
    first, other, further = requests
    assert [each.arrival for each in requests] == [0.0, 3.0, 4.0]
    assert further.content[0] == first.content[0], "behind the block that it names"
    assert len(further.content) == 2
    assert (first.tenant, other.tenant, further.tenant) == ("acme-salt", "", "acme-salt")
    assert first.prompt_tokens == 33


@pytest.mark.parametrize("kinds", [(None, None), ("sliding_window", "full_attention")])
def test_kv_events_of_several_groups_are_those_of_one(tmp_path, kinds):
    stored = {"type": "BlockStored", "parent_block_hash": None, "block_size": 16}
    groups = [stored | {"group_idx": group, "kv_cache_spec_kind": kind} for group, kind in enumerate(kinds)]
    requests = read(
        tmp_path / "events.jsonl",
        [100.0, [groups[0] | {"block_hashes": [12]}, groups[1] | {"block_hashes": [11, 12]}]],
        [101.0, [groups[1] | {"block_hashes": [13, 14]}, groups[0] | {"block_hashes": [14]}]],
    )
    assert [each.arrival for each in requests] == [0.0, 1.0]
    assert [len(each.content) for each in requests] == ([2, 2] if kinds[1] else [1, 1])


@pytest.mark.parametrize(("later", "lengths"), [("full_attention", [1, 2]), ("mamba", [1])])
def test_kv_events_count_from_the_first_group_of_whole_prompts(tmp_path, later, lengths):
    stored = {"type": "BlockStored", "parent_block_hash": None, "block_size": 16}
    requests = read(
        tmp_path / "events.jsonl",
        [100.0, [stored | {"group_idx": 0, "kv_cache_spec_kind": "sliding_window", "block_hashes": [12]}]],
        [101.0, [stored | {"group_idx": 1, "kv_cache_spec_kind": later, "block_hashes": [13, 14]}]],
    )
    assert [len(each.content) for each in requests] == lengths


def test_the_first_time_that_is_there_is_taken(tmp_path):
    times = [
        {"timestamp": 10.0, "ts": "2023-11-16 18:15:46"},
        {"timestamp": 11.0, "time": "noon"},
        {"timestamp": "", "time": 12},
        {"timestamp": None, "arrival": "13", "time": 99.0},
        {"timestamp_ms": None, "timestamp": 14.0},
    ]
    requests = read(
        tmp_path / "any.jsonl", *({"user_id": "a", "prompt_tokens": 64, "output_tokens": 1} | each for each in times)
    )
    assert [each.arrival for each in requests] == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("line", [{"user_id": "a"}, {"chat_id": 7, "parent_chat_id": -1}], ids=["sessions", "qwen"])
def test_null_is_as_what_is_not_there(tmp_path, line):
    plain, null = read(tmp_path / "any.jsonl", ASKED | line, ASKED | line | {"hash_ids": None, "block_size": None})
    assert (plain.content, plain.content_tokens) == (null.content, null.content_tokens)


@pytest.mark.parametrize("no_parent", [None, -1.0])
def test_a_chats_parents_may_be_written_as_pandas_does(tmp_path, no_parent):
    chats = [(7.0, no_parent), (9.0, 7.0)]
    requests = read(
        tmp_path / "qwen.jsonl", *(ASKED | {"chat_id": chat, "parent_chat_id": parent} for chat, parent in chats)
    )
    assert [each.conversation for each in requests] == [7, 7]


def test_blank_lines_of_a_table_are_left_out(tmp_path):
    path = tmp_path / "azure.csv"
    rows = ["", "   ", "TIMESTAMP,ContextTokens,GeneratedTokens", "", "2024-05-10 00:00:00.0,200,20"]
    assert [each.prompt_tokens for each in read(path, *rows)] == [200]
    with pytest.raises(TraceError, match="line 5: ContextTokens is 'x'"):
        read(path, *rows[:4], "2024-05-10 00:00:00.0,x,20")


def test_a_trace_may_be_packed(tmp_path):
    line = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(line).encode()))
    assert [each.content for each in READERS[guess_format(path)](path)] == [(0, 1)]


@pytest.mark.parametrize(
    "lines",
    [
        ["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:00.0,200,20"],
        [json.dumps(ASKED | {"user_id": "a"})],
    ],
    ids=["a table", "lines of JSON"],
)
def test_a_trace_may_begin_with_a_byte_order_mark(tmp_path, lines):
    assert len(read(tmp_path / "trace", "\ufeff" + lines[0], *lines[1:])) == 1


def test_dates_without_a_zone_are_utc_wherever_they_are_read(tmp_path, monkeypatch):
    # There the clock went from 1:59 to 3:00.
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    dates = ["2024-03-10 01:59:59", "2024-03-10T02:00:00Z", "2024-03-10 03:00:00"]
    requests = read(tmp_path / "any.jsonl", *(ASKED | {"user_id": "a", "timestamp": date} for date in dates))
    monkeypatch.undo()
    time.tzset()
    assert [each.arrival for each in requests] == [0.0, 1.0, 3601.0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"input_length": 1, "hash_ids": [1], "output_length": 1}', "line 1: timestamp is missing"),
        ('{"timestamp": -1, "input_length": 1, "hash_ids": [], "output_length": 1}', "expected a number of at least 0"),
        ('{"timestamp": 0, "input_length": 1, "hash_ids": "x", "output_length": 1}', "expected a list"),
        ('{"timestamp": 0, "input_length": 1, "hash_ids": [', "no JSON"),
        ('{"session_id": "s", "timestamp": "noon", "prompt_tokens": 1}', "expected seconds, or a date and a time"),
        (
            '{"user_id": "a", "ts": 1764000000000000000, "prompt_tokens": 1}',
            r"expected a number below 10\^15; times are",
        ),
        ('{"user_id": "a", "ts": "1.764e18", "prompt_tokens": 1}', "times are seconds or milliseconds"),
        ("what is this", "no format is known that begins so: 'what is this'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, line, says):
    with pytest.raises(TraceError, match=says):
        read(tmp_path / "trace.jsonl", line)
