"""What is probably a mistake causes one warning, with the number of the line."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenantzone_replay.traces.mix import mixed, parse_source

MOONCAKE = {"timestamp": 0, "input_length": 1300, "output_length": 8, "hash_ids": [1, 2, 3]}
QWEN = MOONCAKE | {"chat_id": 7, "parent_chat_id": -1, "input_length": 40}
SESSION = MOONCAKE | {"user_id": "a"}

Warned = Callable[[Sequence[Mapping[str, Any]]], list[str]]


@pytest.fixture
def warned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Warned:
    """The warnings about a trace that is read twice."""

    def read(lines: Sequence[Mapping[str, Any]]) -> list[str]:
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        sources = [parse_source(str(path))]
        for _ in range(2):
            assert len(list(mixed(sources))) == len(lines)
        return capsys.readouterr().err.replace(str(tmp_path) + "/", "").splitlines()

    return read


@pytest.mark.parametrize("line", [MOONCAKE, QWEN, SESSION], ids=["mooncake", "qwen", "sessions"])
@pytest.mark.parametrize("ids", [[1], list(range(90))], ids=["too few", "too many"])
def test_ids_that_do_not_match_the_lengths(line: dict[str, Any], ids: list[int], warned: Warned):
    (warning,) = warned([line, line | {"hash_ids": ids}, line | {"hash_ids": ids}])

    assert warning.startswith(f"warning: trace.jsonl, line 2: hash_ids has {len(ids)} ids for a prompt of ")
    assert "3 parts" in warning


@pytest.mark.parametrize("line", [MOONCAKE, QWEN, SESSION], ids=["mooncake", "qwen", "sessions"])
@pytest.mark.parametrize("ids", [None, [], [1, 2], [1, 2, 3]], ids=["none", "empty", "whole parts", "all"])
def test_ids_that_match(line: dict[str, Any], ids: list[int] | None, warned: Warned):
    assert warned([line, line | {"hash_ids": ids}]) == []


def test_ids_may_go_on_for_the_answer(warned: Warned):
    assert warned([MOONCAKE | {"output_length": 600, "hash_ids": [1, 2, 3, 4]}]) == []


def test_seconds_where_milliseconds_are_meant(warned: Warned):
    (warning,) = warned([MOONCAKE | {"timestamp": 5 * number} for number in range(150)])

    assert warning.startswith("warning: trace.jsonl, line 100: 100 requests came within 0.495 seconds")
    assert "this format has milliseconds" in warning


def test_unix_time_in_seconds_where_milliseconds_are_meant(warned: Warned):
    (warning,) = warned([MOONCAKE | {"timestamp": 1_764_000_000 + number} for number in range(3)])

    assert warning.startswith("warning: trace.jsonl, line 1: the time 1764000000 seems to be Unix time in seconds")


@pytest.mark.parametrize("line", [QWEN, SESSION], ids=["qwen", "sessions"])
def test_milliseconds_where_seconds_are_meant(line: dict[str, Any], warned: Warned):
    (warning,) = warned([line | {"timestamp": 1_764_000_000_000 + number} for number in range(3)])

    assert warning.startswith("warning: trace.jsonl, line 1: the time 1764000000000 seems to be in milliseconds")


@pytest.mark.parametrize(
    "lines",
    [
        [MOONCAKE | {"timestamp": 200 * number} for number in range(150)],
        [MOONCAKE | {"timestamp": 1_764_000_000_000 + 200 * number} for number in range(150)],
        [MOONCAKE] * 150,
        [QWEN | {"timestamp": number / 1000} for number in range(150)],
        [SESSION | {"timestamp": 1_764_000_000 + number} for number in range(150)],
        [SESSION | {"timestamp": None, "timestamp_ms": 1_764_000_000_000 + 200 * number} for number in range(150)],
    ],
    ids=["milliseconds", "Unix time in milliseconds", "all at once", "seconds", "Unix time", "timestamp_ms"],
)
def test_times_that_are_as_the_format_has_them(lines: list[dict[str, Any]], warned: Warned):
    assert warned(lines) == []
