"""The runner of the bench for GPUs: a failure ends nothing but itself, and each outcome is in the file."""

import asyncio
import json
from dataclasses import replace

import pytest

from bench.gpu import __main__ as command_line
from bench.gpu.engines import EngineSpec
from bench.gpu.group import Group, NotPossible, Phase
from bench.gpu.results import FORMAT, Recorder, read
from bench.gpu.runner import Settings, run_groups
from bench.gpu.shapes import SHAPES, shape_of_model, write_model

BROKEN = EngineSpec("stock", None, variables={"PYTHONHOME": "/nowhere"})
"""An engine whose Python ends at once."""


class Bench:
    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "run.json"
        self.said = []
        self.ran = []

    def phase(self, name, limit_seconds=60.0, error=None, waits=False):
        async def run(context):
            self.ran.append((name, context.seeds))
            if waits:
                await asyncio.Event().wait()
            if error is not None:
                raise error
            return {"rows": [{"engine": name}]}

        return Phase(name, limit_seconds, run)

    async def run(self, *groups, names=None):
        shape = replace(SHAPES["nano"], on_gpu=False)
        settings = Settings(shape, self.folder / "model", self.folder, (1, 2), (), self.said.append)
        run = {"format": FORMAT, "engines": {}, "phases": []}
        named = names or [phase.name for group in groups for phase in group.phases]
        self.succeeded = await run_groups(groups, named, settings, Recorder(run, self.path))
        return {each["name"]: each for each in read(self.path)["phases"]}


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def without_engines(name, *phases):
    return Group(name, lambda shape, folder: (), phases)


async def test_each_phase_gets_the_seeds_and_its_results_are_in_the_file(bench):
    phases = await bench.run(without_engines("g", bench.phase("a"), bench.phase("b")))
    assert bench.ran == [("a", (1, 2)), ("b", (1, 2))]
    assert phases["b"] | {"seconds": 0} == {
        "group": "g",
        "name": "b",
        "status": "done",
        "why": "",
        "seconds": 0,
        "limit_seconds": 60.0,
        "results": {"rows": [{"engine": "b"}]},
    }
    assert bench.succeeded


async def test_only_named_phases_run(bench):
    group = without_engines("g", bench.phase("a"), bench.phase("b"))
    assert list(await bench.run(group, without_engines("h", bench.phase("c")), names=["b"])) == ["b"]


async def test_after_a_phase_that_fails_the_next_one_runs(bench):
    phases = await bench.run(without_engines("g", bench.phase("a", error=ValueError("no tokens")), bench.phase("b")))
    assert (phases["a"]["status"], phases["a"]["why"]) == ("failed", "ValueError: no tokens")
    assert phases["a"]["results"] == {}
    assert phases["b"]["status"] == "done"
    assert not bench.succeeded


async def test_the_reason_in_a_group_of_tasks_is_the_first_error(bench):
    error = ExceptionGroup("tasks", [ExceptionGroup("inner", [ValueError("no tokens")])])
    phases = await bench.run(without_engines("g", bench.phase("a", error=error)))
    assert phases["a"]["why"] == "ValueError: no tokens"


async def test_a_phase_that_overruns_its_limit_is_ended(bench):
    phases = await bench.run(without_engines("g", bench.phase("a", limit_seconds=0.05, waits=True), bench.phase("b")))
    assert phases["a"]["status"] == "timed out"
    assert phases["b"]["status"] == "done"
    assert not bench.succeeded


async def test_a_phase_that_cannot_run_here_is_no_failure(bench):
    phases = await bench.run(without_engines("g", bench.phase("a", error=NotPossible("no compiler"))))
    assert (phases["a"]["status"], phases["a"]["why"]) == ("not possible here", "no compiler")
    assert bench.succeeded


async def test_after_engines_that_do_not_start_the_next_group_runs(bench):
    broken = Group("g", lambda shape, folder: (BROKEN,), (bench.phase("a"), bench.phase("b")))
    phases = await bench.run(broken, without_engines("h", bench.phase("c")))
    assert [each["status"] for each in phases.values()] == ["failed", "failed", "done"]
    assert "stock ended after" in phases["a"]["why"]
    assert "init_fs_encoding" in phases["a"]["why"], "the reason has the end of the log"
    assert bench.ran == [("c", (1, 2))]
    assert not bench.succeeded


async def test_engines_that_cannot_run_here_are_no_failure(bench):
    def refuse(shape, folder):
        raise NotPossible("no model")

    phases = await bench.run(Group("g", refuse, (bench.phase("a"),)))
    assert (phases["a"]["status"], phases["a"]["why"]) == ("not possible here", "no model")


class TestShapes:
    def test_a_written_model_is_read_as_a_model_with_weights(self, tmp_path):
        write_model(SHAPES["nano"], tmp_path / "model")
        shape = shape_of_model(tmp_path / "model", on_gpu=False)
        assert (shape.name, shape.weights) == ("model", "real")
        assert shape.config == SHAPES["nano"].config
        assert shape.load == SHAPES["nano"].load

    @pytest.mark.parametrize("name", SHAPES)
    def test_its_tokenizer_knows_each_token(self, name, tmp_path):
        shape = SHAPES[name]
        write_model(shape, tmp_path)
        vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
        assert len(vocabulary) == shape.vocabulary

    def test_the_cache_of_an_8b_llama_takes_128_kib_for_each_token(self):
        shape = SHAPES["8b"]
        assert shape.cache_bytes == 6144 * 16 * 128 * 1024


class TestCommandLine:
    def test_a_group_stands_for_its_phases(self):
        assert command_line._phases(["default"]) == {"equal", "noisy", "reclaim", "throughput"}
        assert command_line._phases(["reclaim"]) == {"reclaim"}
        assert command_line._phases(["all"]) >= {"equal", "noisy", "reclaim", "throughput"}

    def test_flags_for_the_engines_come_last(self):
        options = command_line._options(["--shape", "1b", "--flags", "--dtype", "float16"])
        assert (options.shape, options.flags) == ("1b", ["--dtype", "float16"])
