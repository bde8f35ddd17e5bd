"""Broken and malicious traces: an error that says what is wrong, in bounded memory and time."""

import gzip
import json
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenantzone_replay.__main__ import main
from tenantzone_replay.engine.measured import read_measured
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.simulation.virtual_engine import VirtualEngine
from tenantzone_replay.traces.load import MAX_BLOCKS, MAX_TENANTS, MAX_TOKENS, TraceError
from tenantzone_replay.traces.mix import parse_source
from tenantzone_replay.traces.readers import READERS, guess_format
from tenantzone_replay.traces.tenants import with_tenants
from tests.replay.test_measured import TRUE

MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}
QWEN = {"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 40, "output_length": 5, "hash_ids": [1]}
SESSION = {"user_id": "acme", "session_id": "s", "timestamp": 10.0, "prompt_tokens": 64, "output_tokens": 16}
RECORDED = {"recorded": 1, "time": 5.0, "oldest": 5.0, "tenant": "acme", "prompt_tokens": 64, "block_tokens": 32}
STORED = {"type": "BlockStored", "parent_block_hash": None, "block_size": 16, "block_hashes": [1, 2]}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MEBIBYTE = 2**20


def load(path: Path, *options):
    """A whole trace, as the commands read it."""
    source = parse_source(",".join([str(path), *options]))
    return profile(with_tenants(source.load(), 8, "zipf"))


def written(folder: Path, *lines, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param(MOONCAKE | {"timestamp": float("nan")}, "timestamp is 'nan'; expected a number", id="NaN"),
        pytest.param(MOONCAKE | {"timestamp": float("inf")}, "timestamp is 'inf'; expected a number", id="no end"),
        pytest.param(MOONCAKE | {"timestamp": -5}, "timestamp is '-5'; expected a number of at least 0", id="negative"),
        pytest.param(MOONCAKE | {"timestamp": 10**400}, "expected a number", id="a number of 400 digits"),
        pytest.param(MOONCAKE | {"input_length": 10**14}, "expected at most 4,194,304", id="a huge prompt"),
        pytest.param(MOONCAKE | {"input_length": None}, "input_length is missing", id="null"),
        pytest.param(MOONCAKE | {"input_length": [1]}, "expected a number", id="a list for a number"),
        pytest.param(MOONCAKE | {"hash_ids": [2**70]}, "whole numbers from 0 to 2", id="a huge id"),
        pytest.param(MOONCAKE | {"hash_ids": [-1]}, "whole numbers from 0 to 2", id="a negative id"),
        pytest.param(MOONCAKE | {"user_id": "x" * 10_000}, "at most 253 printable characters", id="a long name"),
        pytest.param(MOONCAKE | {"user_id": "\x1b[2J"}, "printable characters", id="a name that clears the screen"),
        pytest.param(MOONCAKE | {"user_id": "\ud800"}, "printable characters", id="a name that is no Unicode"),
        pytest.param(QWEN | {"parent_chat_id": [1]}, "parent_chat_id is", id="a list for a parent"),
        pytest.param(QWEN | {"chat_id": 1e300}, "expected a number", id="a huge chat"),
        pytest.param(SESSION | {"session_id": "\ud800"}, None, id="a session whose name is no Unicode"),
        pytest.param(SESSION | {"output_tokens": 10**13}, "expected at most", id="an endless answer"),
        pytest.param(SESSION | {"timestamp": "nan"}, "expected a number", id="NaN as a text"),
        pytest.param(SESSION | {"timestamp": "-3"}, "expected a number", id="a negative time as a text"),
        pytest.param(RECORDED | {"answers": 10**9}, "expected at most 16,384", id="answers without end"),
        pytest.param(RECORDED | {"hashes": 7}, "hashes must be text with 8 characters", id="hashes that are none"),
        pytest.param([1.0, [STORED | {"block_hashes": [3], "parent_block_hash": 3}]] , None, id="its own parent"),
        pytest.param([1.0, [STORED | {"block_size": 10**12}]], "expected at most", id="a huge block"),
        pytest.param([1.0, [STORED | {"extra_keys": {"a": 1}}]], None, id="keys that are no list"),
        pytest.param([1.0, 7], "expected a JSON object", id="no batch"),
        pytest.param("[" * 200_000 + "\n", "invalid JSON", id="nested without end"),
        pytest.param(MOONCAKE | {"hash_ids": {}}, "expected a list of whole numbers", id="an object for a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_line_is_named(tmp_path, line, says):
    name = "qwen" if isinstance(line, str) else "kv-events" if isinstance(line, list) else ""
    path = written(tmp_path, line)
    if says is None:
        assert load(path).requests == 1
        return
    with pytest.raises(TraceError, match=says):
        load(path, *([f"format={name}"] if name else []))


def test_a_prompt_without_ids_is_a_conversation_of_its_own(tmp_path):
    for line, name in ((MOONCAKE | {"hash_ids": None}, "mooncake"), (RECORDED, "recorded")):
        line = {each: value for each, value in line.items() if value is not None}
        first, second = parse_source(f"{written(tmp_path, line, line)},format={name}").load()
        assert first.conversation != second.conversation


def test_a_chain_that_bites_its_tail_ends(tmp_path):
    first = [1.0, [STORED | {"block_hashes": [1, 2], "parent_block_hash": 2}]]
    second = [2.0, [STORED | {"block_hashes": [3], "parent_block_hash": 2}]]
    with pytest.raises(TraceError, match="has more than 262,144 blocks"):
        load(written(tmp_path, first, second))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (AZURE + "2023-11-16 18:15:46.68,nan,4\n", "line 2: ContextTokens is 'nan'"),
        (AZURE + "2023-11-16 18:15:46.68\n", "line 2: ContextTokens is missing"),
        (AZURE + "yesterday,1,4\n", "line 2: TIMESTAMP is 'yesterday'; expected seconds, or a date and a time"),
        (AZURE + '"' + "x" * 200_000 + '",1,4\n', "invalid CSV: field larger than field limit"),
        ("Timestamp,Request tokens,Response tokens,Session ID\n1,5\n", "Response tokens is missing"),
    ],
    ids=["NaN", "a short row", "no time", "a huge field", "a column that is missing"],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path, text, says):
    with pytest.raises(TraceError, match=says):
        load(written(tmp_path, text, name="trace.csv"))


def test_wrong_columns_are_named(tmp_path):
    path = written(tmp_path, "when,what\n1,2\n", name="trace.csv")
    with pytest.raises(TraceError, match="column 'TIMESTAMP' is missing; the columns are when, what"):
        load(path, "format=azure")


@pytest.mark.parametrize("cut", [5, 12, 400], ids=["in its head", "at its beginning", "in its midst"])
def test_a_packed_trace_that_is_cut_off_says_so(tmp_path, cut):
    lines = "".join(json.dumps(MOONCAKE | {"timestamp": each, "hash_ids": [each * 7919]}) + "\n" for each in range(200))
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode())[:cut])
    with pytest.raises(TraceError, match=r"truncated or corrupt|can't detect the format"):
        load(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"\xff\xfe\x00", "not UTF-8 text"), (b"", "can't detect the format"), (b"\x1f\x8b\x08garbage", "not UTF-8 text")],
)
def test_what_is_no_text_says_so(tmp_path, content, says):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says):
        load(path)


def test_times_that_are_not_in_order_are_taken_as_they_come(tmp_path):
    path = written(tmp_path, *(MOONCAKE | {"timestamp": when} for when in (5000, 1000, 9000, 9000)))
    assert [each.arrival for each in parse_source(str(path)).load()] == [0.0, 0.0, 4.0, 4.0]


def test_a_request_after_a_million_years_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"request 2 arrives .* check the unit of the times"):
        load(written(tmp_path, MOONCAKE, MOONCAKE | {"timestamp": 1e14}))


def test_a_million_tenants_are_refused_in_little_memory(tmp_path):
    path = tmp_path / "trace.jsonl"
    with path.open("w") as file:
        for number in range(1_000_000):
            file.write(f'{{"user_id":"u{number}","timestamp":{number / 100},"prompt_tokens":64}}\n')
            if number == 3 * MAX_TENANTS:
                break
    with traced() as peak, pytest.raises(TraceError, match="more than the maximum of 10,000 tenants"):
        load(path)
    assert peak() < 64 * MEBIBYTE


def test_a_line_without_end_is_not_read_whole(tmp_path):
    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:
        file.truncate(2**40)
    with traced() as peak, pytest.raises(TraceError, match="more than 8,388,608 characters"):
        load(path)
    assert peak() < 128 * MEBIBYTE


def test_recordings_whose_oldest_never_ends_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tenantzone_replay.traces.readers.recorded._MOST_UNDER_WAY", 100)
    lines = [RECORDED | {"time": float(each), "oldest": 0.0} for each in range(200)]
    with pytest.raises(TraceError, match="more than 100 requests were in flight at once"):
        load(written(tmp_path, *lines))


def test_a_long_conversation_takes_no_more_memory_than_its_longest_prompt(tmp_path):
    path = written(tmp_path, *(SESSION | {"timestamp": each, "prompt_tokens": MAX_TOKENS // 32} for each in range(2)))
    with traced() as peak:
        assert load(path).requests == 2
    assert peak() < 16 * MEBIBYTE


@pytest.mark.parametrize(
    "option",
    ["requests=0", "requests=-1", "shift=inf", "shift=nan", "rate=nan", "rate=inf", "rate=-1", "burst=0:1:1000000000"],
)
def test_an_option_that_would_never_end_is_refused(tmp_path, option):
    with pytest.raises(TraceError, match="is invalid: "):
        parse_source(f"{written(tmp_path, MOONCAKE)},{option}")


@pytest.mark.parametrize(
    "option", ["tenants=1000000", "seconds=inf", "chats=nan", "said=1e9", "skew=-1", "seconds=nan"]
)
def test_chats_without_end_are_refused(option):
    with pytest.raises(TraceError, match="is invalid: "):
        parse_source(f"chats,{option}")


@pytest.mark.parametrize(
    "change", [{"step": float("nan")}, {"token": -1}, {"request": 1e300}, {"block_tokens": 0}, {"gpu_count": "many"}]
)
def test_an_engine_that_was_not_measured_is_refused(tmp_path, change):
    path = tmp_path / "engine.json"
    TRUE.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(TraceError, match=r"must be|not written by the command fit"):
        read_measured(path)


def test_the_command_says_it_in_one_line(tmp_path):
    path = written(tmp_path, MOONCAKE | {"user_id": "\x1b[2J"})
    with pytest.raises(SystemExit, match=r"^tenantzone-replay: the tenant of request 1 is '\\x1b\[2J'"):
        main(["compare", str(path)])
    with pytest.raises(SystemExit, match=f"set --blocks to at most {MAX_BLOCKS:,}"):
        main(["compare", "chats,seconds=10", "--blocks", "1000000000"])


def test_a_year_without_a_request_is_over_soon(tmp_path, monkeypatch):
    path = written(tmp_path, *(SESSION | {"timestamp": each * 86_400.0} for each in (0, 1, 365)))
    passed, pass_time = [], VirtualEngine._pass_time

    def counted(engine, until):
        passed.append(until)
        assert len(passed) < 10_000, "second by second"
        pass_time(engine, until)

    monkeypatch.setattr(VirtualEngine, "_pass_time", counted)
    main(["compare", str(path), "--blocks", "100", "--policies", "zones"])
    assert passed[-1] > 365 * 86_400


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([MOONCAKE, QWEN, SESSION, RECORDED, STORED]), st.data())
def test_whatever_stands_in_a_line_it_is_read_or_refused(tmp_path_factory, line, data):
    changed = dict(line)
    for name in data.draw(st.lists(st.sampled_from(sorted(line)), max_size=3)):
        changed[name] = data.draw(values)
    folder = tmp_path_factory.getbasetemp()
    path = written(folder, [1.0, [changed]] if line is STORED else changed, name="drawn.jsonl")
    with suppress(TraceError):
        assert load(path).longest <= 2 * MAX_TOKENS + 1


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.binary(max_size=300))
def test_whatever_a_file_is_it_is_read_or_refused(tmp_path_factory, name, content):
    path = tmp_path_factory.getbasetemp() / "drawn.txt"
    path.write_bytes(content)
    for options in ([], [f"format={name}"]):
        with suppress(TraceError):
            assert load(path, *options).tokens >= 0
    with suppress(TraceError):
        assert guess_format(path) in READERS


class traced:
    """The most that Python has allocated meanwhile, in bytes."""

    def __enter__(self):
        tracemalloc.start()
        return lambda: self._peak

    def __exit__(self, *_):
        self._peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
