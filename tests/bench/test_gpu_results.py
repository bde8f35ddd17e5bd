"""The JSON file of the bench for GPUs."""

import json

import pytest

from bench.gpu.results import FORMAT, Recorder, ResultsError, read, rounded


@pytest.fixture
def run():
    return {
        "format": FORMAT,
        "started": "2026-11-27T12:00:00+00:00",
        "command": "python -m bench.gpu",
        "environment": {},
        "model": {"name": "nano", "weights": "dummy"},
        "engines": {},
        "phases": [],
    }


def phase(name, **results):
    return {
        "group": "default",
        "name": name,
        "status": "done",
        "why": "",
        "seconds": 1.5,
        "limit_seconds": 60.0,
        "results": results,
    }


def test_the_file_can_be_read_after_each_result(run, tmp_path):
    path = tmp_path / "run.json"
    recorder = Recorder(run, path)
    assert read(path)["phases"] == []
    recorder.add_engine("default", "stock", {"command": ["vllm"], "ready_seconds": 12.34567})
    assert read(path)["engines"] == {"default/stock": {"command": ["vllm"], "ready_seconds": 12.3457}}
    for number, name in enumerate(("equal", "noisy"), start=1):
        recorder.put_phase(phase(name, rows=[]))
        assert [each["name"] for each in read(path)["phases"]] == ["equal", "noisy"][:number]
    assert read(path) == recorder.run


def test_no_other_file_is_left(run, tmp_path):
    Recorder(run, tmp_path / "run.json").put_phase(phase("equal"))
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_without_a_path_results_stay_in_memory(run):
    recorder = Recorder(run, None)
    recorder.put_phase(phase("equal"))
    assert recorder.run["phases"][0]["name"] == "equal"


def test_a_phase_replaces_what_was_recorded_of_it_before(run, tmp_path):
    recorder = Recorder(run, tmp_path / "run.json")
    recorder.put_phase(phase("equal", rows=[1]))
    recorder.put_phase(phase("noisy", rows=[1]))
    recorder.put_phase(phase("noisy", rows=[1, 2]))
    assert [each["results"]["rows"] for each in read(tmp_path / "run.json")["phases"]] == [[1], [1, 2]]


def test_a_file_that_cannot_be_written_is_written_with_the_next_result(run, tmp_path):
    path, said = tmp_path / "missing" / "run.json", []
    recorder = Recorder(run, path, said.append)
    assert "No such file" in said[0]
    assert not recorder.save()
    path.parent.mkdir()
    recorder.put_phase(phase("equal"))
    assert [each["name"] for each in read(path)["phases"]] == ["equal"]
    assert recorder.save()


def test_a_write_that_fails_leaves_no_part_of_a_file(run, tmp_path):
    path = tmp_path / "run.json"
    # It cannot be replaced by a file.
    path.mkdir()
    Recorder(run, path, lambda message: None)
    assert list(tmp_path.iterdir()) == [path]


def test_times_are_rounded_at_every_depth():
    assert rounded({"a": [0.123456, {"b": (1.00004, 2)}], "c": "x", "d": True}) == {
        "a": [0.1235, {"b": [1.0, 2]}],
        "c": "x",
        "d": True,
    }


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"format": FORMAT + 1})])
def test_another_file_is_refused_by_its_name(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"other\.json"):
        read(path)
