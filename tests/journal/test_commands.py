"""``tenantzone-runtime journal``, as people run it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenantzone_runtime.journal import progress
from tenantzone_runtime.journal.record import EngineRun
from tenantzone_runtime.journal.verify import verify
from tenantzone_runtime.journal.writer import JournalWriter
from tenantzone_runtime.zones.audit.events import LoanUsage, TierUsage, Usage
from tests.journal.journals import chain, put, records, some_chain, written_with

DOCS = Path(__file__).parents[2] / "docs" / "journal.md"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenantzone_runtime", "journal", *map(str, arguments)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A journal of what two zones used on one engine, written by the real writer."""
    now = 1000.0
    engine = EngineRun("llama-0", 1_700_000_000.0, "0.32.0", 1000, 16)
    writer = JournalWriter(tmp_path / "llama-0", engine=engine, clock=lambda: now)
    for acme in (10, 25):
        used = Usage("acme", now, acme * 1.5, acme, 3, 2, acme + 1, 7, 5, 4, 3)
        writer.write([used, Usage("burst", now, 1234.5678, 1, 0, 9, 9, 0, 0, 0, 0)], at=now)
    writer.write([LoanUsage("acme", "burst", now, 12.5), TierUsage("acme", "cpu", now, 1.5 * 2**40)], at=now)
    writer.close()
    return tmp_path / "llama-0"


def test_a_journal_that_holds_is_said_with_its_head(folder):
    found = run("verify", folder)
    assert (found.returncode, found.stderr) == (0, "")
    head = records(folder)[-1]
    assert found.stdout.splitlines()[0] == "7 records hold, 0 to 6"
    assert f"head {head['hash']}" in found.stdout
    assert f"to {head['time']}" in found.stdout


def test_a_noted_head_is_looked_for(folder):
    noted = records(folder)[3]["hash"]
    found = run("verify", folder, "--head", noted)
    assert "the noted hash is that of record 3" in found.stdout
    missed = run("verify", folder, "--head", "f" * 64)
    assert (missed.returncode, missed.stdout) == (1, "")
    assert "records 0 to 6 hold, but none of them has the hash ffff" in missed.stderr


def test_the_first_record_that_does_not_hold_is_named(tmp_path):
    lines = some_chain(5)
    found = run("verify", put(tmp_path, lines[:2], [written_with(lines[2], blocks=99), *lines[3:]]))
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == (
        "tenantzone-runtime journal: broken: journal-00000002.jsonl line 1 (record 2): "
        "its content does not fit its hash: it was changed\n"
    )


@pytest.mark.parametrize("command", ["verify", "bill"])
def test_a_folder_that_is_none_or_empty_is_one_line_without_a_traceback(tmp_path, command):
    for place, said in ((tmp_path / "absent", "absent can't be read: No such file"), (tmp_path, "there is no journal")):
        found = run(command, place)
        assert found.returncode == 1
        assert said in found.stderr
        assert found.stderr.count("\n") == 1


def test_a_record_that_holds_but_says_nonsense_is_named_and_not_billed(tmp_path):
    put(tmp_path, chain([Usage("acme", 0.0, 1.0, "many", *[0] * 7)]))
    found = run("bill", tmp_path)
    assert found.returncode == 1
    assert "line 1 (record 0): no engine wrote it so" in found.stderr
    assert found.stderr.count("\n") == 1


def test_the_bill_is_a_table(folder):
    found = run("bill", folder)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines() == [
        "zone   block-seconds  prompt tokens  of them cached  generation tokens",
        "acme          37.500             25               3                  2",
        "burst      1,234.568              1               0                  9",
        "",
        "zone   computed first  recomputed  drafts rejected  loaded  hit",
        "acme               26           7                5       4    3",
        "burst               9           0                0       0    0",
        "",
        "lender  borrower  block-seconds lent",
        "acme    burst                 12.500",
        "",
        "zone  tier  GiB-seconds",
        "acme  cpu     1,536.000",
    ]


def processed(*tokens: int) -> dict[str, int]:
    names = ("computedFirst", "recomputed", "rejectedDraft", "loaded", "hit")
    return {f"{name}Tokens": number for name, number in zip(names, tokens, strict=True)}


def test_the_bill_is_json_that_says_what_it_was_made_from(folder):
    bill = json.loads(run("bill", folder, "--json", "--to", "2100-01-01").stdout)
    head = records(folder)[-1]["hash"]
    assert bill == {
        "from": None,
        "to": "2100-01-01T00:00:00+00:00",
        "zones": [
            {"zone": "acme", "blockSeconds": 37.5, "promptTokens": 25, "cachedTokens": 3, "generationTokens": 2}
            | processed(26, 7, 5, 4, 3),
            {"zone": "burst", "blockSeconds": 1234.568, "promptTokens": 1, "cachedTokens": 0, "generationTokens": 9}
            | processed(9, 0, 0, 0, 0),
        ],
        "loans": [{"lender": "acme", "borrower": "burst", "blockSeconds": 12.5}],
        "tiers": [{"zone": "acme", "tier": "cpu", "byteSeconds": 1.5 * 2**40}],
        "journals": [{"folder": str(folder), "records": 7, "head": head}],
        "warnings": [],
    }


def test_a_period_without_usage_bills_nothing(folder):
    bill = json.loads(run("bill", folder, "--json", "--from", "2100-01-01T00:00:00Z").stdout)
    assert {zone["promptTokens"] for zone in bill["zones"]} == {0}


def test_a_time_that_is_none_is_refused_with_an_example(folder):
    found = run("bill", folder, "--from", "yesterday")
    assert found.returncode == 2
    assert "'yesterday' is no time such as 2026-11-01" in found.stderr


def test_the_command_works_where_vllm_can_not_be_imported(folder):
    script = (
        "import sys; sys.modules['vllm'] = sys.modules['torch'] = None\n"
        "from tenantzone_runtime.__main__ import main\n"
        f"sys.argv[1:] = ['journal', 'verify', {str(folder)!r}]; main()"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], env=environ, check=True)


def test_who_waits_sees_how_far_it_is(folder, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    verify(folder)
    assert f"{folder}: 0 of 0 MB, record 5" in capsys.readouterr().err


def test_the_sample_in_the_docs_holds(tmp_path):
    (sample,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert verify(put(tmp_path, [sample.encode()])).records > 5
