"""Fixtures shared by the replay's tests."""

import json

import pytest


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 200 * number, "input_length": 1300, "output_length": 8, "hash_ids": [0, number % 5, 99 + number]}
        for number in range(40)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
