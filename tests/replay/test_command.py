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


@pytest.fixture
def documents(tmp_path):
    """Questions about one of twelve documents, in no order."""
    path = tmp_path / "documents.jsonl"
    lines = [
        {"timestamp": 200 * number, "input_length": 1600, "output_length": 8, "hash_ids": [0, *range(first, first + 3)]}
        for number in range(60)
        for first in [10 * (number * number % 13) + 1]
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_comparison_is_a_table_a_file_and_a_page_that_loads_nothing(documents, tmp_path, capsys):
    figures, page = tmp_path / "out.json", tmp_path / "out.html"
    arguments = [
        "compare",
        str(documents),
        "--tenants",
        "2",
        "--blocks",
        "12",
        "--json",
        str(figures),
        "--html",
        str(page),
    ]
    main([*arguments, "--policies", "stock", "zones"])
    printed = capsys.readouterr()
    assert re.search(r"^stock +\d", printed.out, re.MULTILINE)
    assert "60 requests of 2 tenants" in printed.err
    policies = json.loads(figures.read_text())["policies"]
    assert [each["policy"] for each in policies] == ["stock", "zones"]
    assert policies[1]["hitRate"] > 0.2
    assert sum(each["requests"] for each in policies[0]["tenants"].values()) == 60
    text = page.read_text()
    # Of all policies, of the load, who held what, and what was lost.
    assert text.count("<svg") == 4 + 2 + 2 + 2
    assert not re.search(r"(src|href)=|url\(|@import|<script", text)


def test_hit_rates_against_capacity_are_a_table_and_a_picture(documents, tmp_path, capsys):
    figures, page = tmp_path / "out.json", tmp_path / "out.html"
    arguments = [
        "compare",
        str(documents),
        "--tenants",
        "2",
        "--blocks",
        "12",
        "--json",
        str(figures),
        "--html",
        str(page),
    ]
    main([*arguments, "--policies", "salted", "zones", "infinite", "--capacities", "50%", "1", "4"])
    assert re.search(r"^hit rate with blocks +6 +12 +48$", capsys.readouterr().out, re.MULTILINE)
    capacities = json.loads(figures.read_text())["capacities"]
    assert list(capacities) == ["salted", "zones"]
    for points in capacities.values():
        rates = [each["hitRate"] for each in points]
        assert rates[0] < rates[1] < rates[2]
    assert "Hit rate against capacity" in page.read_text()


def test_the_price_of_isolation_grows_with_the_tenants(trace, capsys):
    main(["isolation", str(trace), "--blocks", "200", "--counts", "1", "4"])
    one, four = (line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert (one[0], one[4]) == ("1", "+0.0%")
    assert one[1] == four[1] == one[2]
    assert float(four[4].strip("+%")) > 1
    assert float(four[2].strip("%")) < float(one[2].strip("%"))


def test_paging_has_more_requests_at_a_time_than_one_piece_of_memory_each(tmp_path, capsys):
    path = tmp_path / "trace.jsonl"
    lengths = [200, 200, 200, 1600]
    lines = [
        {"timestamp": 0, "input_length": lengths[each % 4], "output_length": 40, "hash_ids": []} for each in range(300)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    main(["memory", str(path), "--tenants", "1", "--pieces", "16"])
    _, *rows = capsys.readouterr().out.splitlines()
    at_a_time = [float(row.split()[-2]) for row in rows]
    assert at_a_time[0] == pytest.approx(16, abs=1)
    assert at_a_time[1] > 1.7 * at_a_time[0]
    assert at_a_time[2] >= at_a_time[0]
    assert float(rows[2].split()[-3].strip("%")) < 60


def test_services_are_ranked_by_what_they_free_in_a_pool(capsys):
    busy = "chats,tenants=1,seconds=60,chats=6,turns=1,seed=2,tenant=busy"
    rare = [f"chats,tenants=1,seconds=60,chats=0.2,turns=1,seed={seed},tenant=rare-{seed}" for seed in (3, 4)]
    main(["rank", busy, *rare, "--blocks", "2000", "--attain", "0.9"])
    printed = capsys.readouterr().out
    services = [line.split()[0] for line in printed.splitlines()[1:4]]
    assert set(services[:2]) == {"rare-3", "rare-4"}, "whoever hardly uses an engine gains most"
    assert services[2] == "busy"
    before, after = map(int, re.search(r"^(\d+) engines of .* with zones, (\d+) do", printed, re.MULTILINE).groups())
    assert after < before


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
