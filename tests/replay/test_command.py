"""The command, with a trace of its own."""

import json
import re

import pytest

from tenantzone_replay.__main__ import main


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 200 * number, "input_length": 1300, "output_length": 8, "hash_ids": [0, number % 5, 99 + number]}
        for number in range(40)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_comparison_is_a_table_a_file_and_a_page_that_loads_nothing(trace, tmp_path, capsys):
    figures, page = tmp_path / "out.json", tmp_path / "out.html"
    arguments = ["compare", str(trace), "--tenants", "2", "--blocks", "60", "--json", str(figures), "--html", str(page)]
    main([*arguments, "--policies", "stock", "zones"])
    printed = capsys.readouterr()
    assert re.search(r"^stock +\d", printed.out, re.MULTILINE)
    assert "40 requests of 2 tenants" in printed.err
    policies = json.loads(figures.read_text())["policies"]
    assert [each["policy"] for each in policies] == ["stock", "zones"]
    assert policies[1]["hitRate"] > 0.2
    assert sum(each["requests"] for each in policies[0]["tenants"].values()) == 40
    text = page.read_text()
    assert text.count("<svg") == 4
    assert not re.search(r"(src|href)=|url\(|@import|<script", text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "there is no such file"),
        (["TRACE,rate=x"], "can't be understood"),
        (["TRACE", "--zones", "TRACE"], "TRACE"),
        (["TRACE", "--model", "70b", "--gpus", "1"], "name more --gpus"),
    ],
)
def test_what_can_not_be_used_is_said(trace, arguments, says):
    arguments = [each.replace("TRACE", str(trace)) for each in arguments]
    with pytest.raises(SystemExit, match=says.replace("TRACE", re.escape(str(trace)))):
        main(["compare", *arguments])
