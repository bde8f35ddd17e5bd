"""The runner of the bench for GPUs: a failure ends only itself, and each outcome is in the file."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.gpu import __main__ as command_line
from bench.gpu.engines import Engine, EngineError, EngineSpec, last_error, watched
from bench.gpu.group import Group, NotPossible, Phase
from bench.gpu.groups import GROUPS
from bench.gpu.options import make_parser, problem
from bench.gpu.results import FORMAT, Recorder, read
from bench.gpu.runner import Settings, _shortened, run_groups
from bench.gpu.shapes import SHAPES, shape_of_model, write_model
from tests.waiting import await_that

ROOT = Path(__file__).parents[2]
BROKEN = EngineSpec("stock", None, variables={"PYTHONHOME": "/nowhere"})
"""An engine whose Python exits at once."""


class Bench:
    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "run.json"
        self.said = []
        self.ran = []
        self.waits = asyncio.Event()

    def phase(self, name, limit_seconds=60.0, error=None, waits=False, keeps=None):
        async def run(context):
            self.ran.append((name, context.seeds))
            if keeps is not None:
                context.say("the second row")
                context.keep({"rows": keeps})
                self.recorded = read(self.path)["phases"][-1]
            if waits:
                self.waits.set()
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


@pytest.mark.parametrize(
    ("ends", "status", "why"),
    [
        ({"limit_seconds": 0.05, "waits": True}, "timed out", "the second row"),
        ({"error": ValueError("no tokens")}, "failed", "ValueError: no tokens"),
    ],
)
async def test_what_a_phase_has_measured_outlives_it(bench, ends, status, why):
    phases = await bench.run(without_engines("g", bench.phase("a", keeps=[1], **ends)))
    assert (bench.recorded["status"], bench.recorded["results"]) == ("interrupted", {"rows": [1]})
    assert (phases["a"]["status"], phases["a"]["why"], phases["a"]["results"]) == (status, why, {"rows": [1]})


async def test_a_phase_that_is_cancelled_is_recorded_as_interrupted(bench):
    running = asyncio.create_task(bench.run(without_engines("g", bench.phase("a", keeps=[1], waits=True))))
    await bench.waits.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (phase,) = read(bench.path)["phases"]
    assert (phase["status"], phase["why"], phase["results"]) == ("interrupted", "the second row", {"rows": [1]})


async def test_an_engine_that_ends_fails_the_phase_at_once_with_its_last_error(bench, monkeypatch):
    async def is_healthy(*_):
        """The engine exits only after its start."""

    monkeypatch.setattr(Engine, "wait_ready", is_healthy)
    phases = await bench.run(Group("g", lambda shape, folder: (BROKEN,), (bench.phase("a", keeps=[1], waits=True),)))
    assert (phases["a"]["status"], phases["a"]["results"]) == ("failed", {"rows": [1]})
    assert re.match(r"EngineError: stock ended after \d+ s: ModuleNotFoundError: .*encodings", phases["a"]["why"])


async def test_an_engine_of_a_phase_alone_is_watched_too(bench, monkeypatch):
    async def is_healthy(*_):
        """The engine exits only after its start."""

    async def run(context):
        async with context.start([BROKEN], 1.0):
            await asyncio.Event().wait()

    monkeypatch.setattr(Engine, "wait_ready", is_healthy)
    phases = await bench.run(without_engines("g", Phase("a", 60.0, run)))
    assert "EngineError: stock ended" in phases["a"]["why"]


async def test_requests_that_fail_because_an_engine_ended_are_not_the_reason(tmp_path):
    engine = Engine(BROKEN, SHAPES["nano"], tmp_path / "model", tmp_path)
    await asyncio.to_thread(await_that, lambda: not engine._server.is_running, "the engine's end")

    async def request():
        raise OSError("no connection")

    with pytest.raises(EngineError, match="stock ended"):
        async with watched([engine]):
            await request()
    await engine.stop()


async def test_an_error_of_a_phase_whose_engines_run_is_the_reason(tmp_path):
    with pytest.raises(OSError, match="no room"):
        async with watched([]):
            raise OSError("no room")


def test_the_last_error_of_a_log_names_a_cause():
    log = "ValueError: no blocks\nRuntimeError: Engine core initialization failed. See root cause above.\n  done\n"
    assert last_error(log) == "ValueError: no blocks"
    assert last_error("all is well\nWARNING 11-27 [utils.py:1] This can cause `OSError: [Errno 24]`\n") == ""


def test_a_long_reason_keeps_its_begin_and_its_end():
    shortened = _shortened(f"first {'x' * 9000} last")
    assert shortened.startswith("first x")
    assert shortened.endswith("x last")
    assert len(shortened) < 4100


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
    assert "_enter_buffered_busy" not in phases["a"]["why"], "the process that holds the engine must not crash"
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
        options = parsed("--shape", "1b", "--flags", "--dtype", "float16")
        assert (options.shape, options.flags) == ("1b", ["--dtype", "float16"])

    def test_the_help_lists_each_phase_once(self):
        shown = make_parser("", tuple(SHAPES), GROUPS).format_help()
        assert len(re.findall(r"\bthroughput\b", shown)) == 1
        assert "  default: equal, noisy, reclaim, throughput\n" in shown

    def test_an_unknown_phase_is_answered_with_each_name_once(self, capsys):
        with pytest.raises(SystemExit):
            parsed("--phases", "unknown")
        assert capsys.readouterr().err.count("graphs") == 1

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ((), "no NVIDIA GPU was found: use --shape nano"),
            (("--shape", "nano", "--seeds", "0"), "--seeds is 0: give at least 1"),
            (("--shape", "nano", "--json", "{}/missing/run.json"), "missing is no folder that can be written to"),
            (("--shape", "nano", "--json", "{}"), "is a folder: name a file in it"),
            (("--shape", "nano", "--json", "{}/full/run.json"), "exists, and its content would be lost"),
            (("--shape", "nano", "--folder", "{}/full"), "is not empty: name a new folder"),
            (("--shape", "nano", "--folder", "{}/full/run.json/folder"), "cannot be used, name another one"),
            (("--model", "{}/missing"), "config.json cannot be read, give a folder with config.json and weights"),
            (("--model", "{}/images"), "has no vocab_size, hidden_size"),
        ],
    )
    def test_what_cannot_work_is_refused_in_a_sentence(self, tmp_path, monkeypatch, capsys, arguments, says):
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "run.json").write_text("{}")
        (tmp_path / "images").mkdir()
        (tmp_path / "images" / "config.json").write_text('{"text_config": {}}')
        monkeypatch.setattr(command_line, "has_gpu", lambda: False)
        with pytest.raises(SystemExit) as ended:
            command_line.main([each.format(tmp_path) for each in arguments])
        assert ended.value.code == 2
        assert says in capsys.readouterr().err
        assert (tmp_path / "full" / "run.json").read_text() == "{}"

    def test_new_and_empty_places_are_accepted(self, tmp_path):
        (tmp_path / "run.json").touch()
        options = parsed("--json", f"{tmp_path}/run.json", "--folder", f"{tmp_path}/new")
        assert problem(options, has_gpu=True) == ""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_the_run_in_order(self, tmp_path, number):
        log = tmp_path / "errors"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.gpu", "--shape", "nano"],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(tmp_path)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        await_that(lambda: "starting engines" in log.read_text(), "the start of the engines")
        process.send_signal(number)
        printed, _ = process.communicate()
        assert process.returncode == 130
        assert {phase["status"] for phase in json.loads(printed)["phases"]} == {"interrupted"}
        assert "Traceback" not in log.read_text()
        assert not list(tmp_path.glob("bench-gpu-*"))


def parsed(*arguments):
    return make_parser("", tuple(SHAPES), GROUPS).parse_args(arguments)
