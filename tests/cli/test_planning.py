"""``replay`` and ``advise``: they are the replay's commands, and report a missing installation of it."""

import importlib.util
import json
import signal

import pytest

from tenantzone_cli.__main__ import main


@pytest.fixture(autouse=True)
def handlers():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("command", "says"), [("replay", "several policies"), ("advise", "--attain")])
def test_they_are_the_replays_own_commands(capfd, command, says):
    assert main([command, "--help"]) == 0
    assert says in capfd.readouterr().out


@pytest.mark.parametrize("missing", ["tenantzone_replay", "vllm"])
def test_what_is_not_installed_is_named(monkeypatch, capsys, missing):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else found(name))
    for command, extra in (("replay", "replay"), ("advise", "advice")):
        assert main([command, "trace.jsonl"]) == 1
        shown = capsys.readouterr().err
        assert f"needs {missing}, which is not installed" in shown
        assert f"pip install 'tenantzone[cpu,{extra}]'" in shown


def test_a_trace_is_replayed(tmp_path, capfd):
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}] * 2
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["replay", str(trace), "--blocks", "60", "--policies", "stock"]) == 0
    assert "stock: vLLM, LRU" in capfd.readouterr().out


def test_the_plugins_help_names_them(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert {"replay", "advise"} <= set(capsys.readouterr().out.split())
