"""The command, with a user's own trace."""

import gzip
import json
import logging
import os
import re
from collections import Counter

import pytest

from tenantzone_contract.zone_config.config import PoolConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.packing import PACKED_KEY, PackedHead
from tenantzone_contract.zone_config.zone_terms import Lending
from tenantzone_replay.__main__ import main


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
    # Pictures of all policies, of the load, of held blocks, and of the zones' losses.
    assert text.count("<svg") == 4 + 2 + 2 + 1
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


def test_isolation_is_of_loads_none_of_whose_tenants_is_named(trace):
    with pytest.raises(SystemExit, match="without named tenants"):
        main(["isolation", str(trace), "chats,seconds=30,shift=1", "--counts", "1"])


def test_paging_has_more_requests_at_a_time_than_one_piece_of_memory_each(tmp_path, capsys):
    path = tmp_path / "trace.jsonl"
    lengths = [200, 200, 200, 1600]
    lines = [
        {"timestamp": 0, "input_length": lengths[each % 4], "output_length": 40, "hash_ids": []} for each in range(300)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    main(["memory", str(path), "--pieces", "16"])
    _, *rows = capsys.readouterr().out.splitlines()
    at_a_time = [float(row.split()[-2]) for row in rows]
    assert at_a_time[0] == pytest.approx(16, abs=1)
    assert at_a_time[1] > 1.7 * at_a_time[0]
    assert at_a_time[2] >= at_a_time[0]
    assert float(rows[2].split()[-3].strip("%")) < 60


def test_a_few_pages_and_a_load_of_a_moment_are_enough_to_count_requests_at_a_time(tmp_path, capsys):
    path = tmp_path / "trace.jsonl"
    lines = [{"user_id": "a", "timestamp": 0, "prompt_tokens": 40, "output_tokens": 8} for _ in range(40)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    main(["memory", str(path), "--pieces", "4"])
    _, *rows = capsys.readouterr().out.splitlines()
    assert [(row.split()[-4], row.split()[-2]) for row in rows] == [("192", "4"), ("192", "4"), ("192", "4")]


def test_services_are_ranked_by_what_they_free_in_a_pool(capsys):
    busy = "chats,tenants=1,seconds=60,chats=6,turns=1,seed=2,tenant=busy"
    rare = [f"chats,tenants=1,seconds=60,chats=0.2,turns=1,seed={seed},tenant=rare-{seed}" for seed in (3, 4)]
    main(["rank", busy, *rare, "--blocks", "2000", "--attain", "0.9"])
    printed = capsys.readouterr().out
    services = [line.split()[0] for line in printed.splitlines()[1:4]]
    assert set(services[:2]) == {"rare-3", "rare-4"}, "tenants that hardly use an engine gain most"
    assert services[2] == "busy"
    before, after = map(int, re.search(r"^(\d+) engines of .* with zones, (\d+) do", printed, re.MULTILINE).groups())
    assert after < before


def test_tenants_whose_zones_might_have_one_name_are_compared(tmp_path, capsys):
    path = tmp_path / "trace.jsonl"
    line = {"session_id": "s", "timestamp": 1, "prompt_tokens": 100, "output_tokens": 8}
    path.write_text("".join(json.dumps(line | {"user_id": tenant}) + "\n" for tenant in ("a-1", "A")))
    main(["compare", str(path), "--blocks", "200", "--policies", "zones"])
    assert re.search(r"^zones +0.0%", capsys.readouterr().out, re.MULTILINE)


def test_zones_are_those_of_a_packed_config_with_its_pools_watermarks(documents, tmp_path, capsys):
    zones = tuple(ZoneConfig(name=each, tenant=each, generation=1, reserved="5%") for each in ("tenant-0", "tenant-1"))
    figures, config = tmp_path / "out.json", tmp_path / "config.json"

    def evicted(watermarks, packed):
        pool = PoolConfig(namespace="models", name="pool", watermarks=watermarks)
        snapshot = make_config(1, pool, zones)
        if packed:
            lines = "\n".join([pool.text, *(zone.text for zone in zones)])
            config.with_name(PACKED_KEY).write_bytes(gzip.compress(lines.encode()))
            config.write_text(PackedHead(generation=1, hash=snapshot.hash).model_dump_json(by_alias=True))
        else:
            config.write_text(dump_config(snapshot))
        options = ["--tenants", "2", "--blocks", "24", "--policies", "zones", "--zones", str(config)]
        main(["compare", str(documents), *options, "--json", str(figures)])
        tenants = json.loads(figures.read_text())["policies"][0]["tenants"].values()
        return sum((Counter(each["evictedBlocks"]) for each in tenants), Counter())

    high = Watermarks(low=0.8, high=0.9)
    assert evicted(high, packed=True) == evicted(high, packed=False)
    assert evicted(high, packed=True)["watermark"] > 0 == evicted(Watermarks(), packed=True)["watermark"]


def test_what_vllm_remarks_on_an_engine_does_not_stand_between_the_lines_of_a_command(trace):
    remarked = []
    handler = logging.Handler()
    handler.emit = remarked.append
    logger = logging.getLogger("vllm")
    before = logger.level
    logger.addHandler(handler)
    try:
        main(["compare", str(trace), "--blocks", "200", "--policies", "zones"])
    finally:
        logger.removeHandler(handler)
    assert [record for record in remarked if record.levelno < logging.ERROR] == []
    assert logger.level == before


def test_requests_without_a_conversation_are_spread_over_engines(tmp_path, capsys):
    path = tmp_path / "trace.csv"
    rows = [f"2024-05-10 00:00:{number // 10:02d}.{number % 10},2000,40\n" for number in range(300)]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    main(["rank", f"{path},tenant=a", f"{path},tenant=b", "--ttft", "0.2", "--blocks", "2000", "--attain", "50%"])
    assert re.search(r"^4 engines of .* with zones, [34] do", capsys.readouterr().out, re.MULTILINE)


def test_a_service_without_traffic_on_the_replayed_engine_has_no_figures_of_the_pool(capsys):
    busy = "chats,seconds=10,chats=12,turns=1,system=16,said=3000,answer=16,tenant=busy"
    main(["rank", busy, "chats,requests=1,seed=3,tenant=rare", "--blocks", "800", "--ttft", "0.3"])
    printed = capsys.readouterr().out
    assert re.search(r"^rare +1 +\d+% +- +- +\S+ s +- +\S+% +-$", printed, re.MULTILINE)
    assert "has nothing of rare" in printed


def test_a_zone_whose_tenant_asks_for_nothing_lends_or_who_waits_for_that_is_refused(tmp_path, capsys):
    busy, idle = (
        ZoneConfig(name=name, tenant=tenant, generation=1, reserved=reserved)
        for name, tenant, reserved in (("busy", "tenant-0", "10%"), ("idle", "idle", "90%"))
    )
    path, figures = tmp_path / "config.json", tmp_path / "out.json"
    config = make_config(1, PoolConfig(namespace="replay", name="pool"), [busy, idle])
    path.write_text(config.model_dump_json(by_alias=True))
    load = ["chats,seconds=100,chats=0.5,tenants=1", "--blocks", "200", "--policies", "zones", "zones-no-lending"]
    main(["compare", *load, "--zones", str(path), "--json", str(figures)])
    assert "requests of 1 tenants" in capsys.readouterr().err
    lending, alone = (each["tenants"] for each in json.loads(figures.read_text())["policies"])
    assert list(lending) == list(alone) == ["tenant-0"]
    assert lending["tenant-0"]["borrowedBlocks"] > 0 == lending["tenant-0"]["refused"]
    assert alone["tenant-0"]["refused"] > 0
    assert alone["tenant-0"]["requests"] + alone["tenant-0"]["refused"] == lending["tenant-0"]["requests"]


def test_what_zones_lend_changes_with_the_capacity_that_is_tried(documents, tmp_path, capsys):
    zones = [
        ZoneConfig(name=tenant, tenant=tenant, generation=1, reserved=12, lending=Lending(lendable=12))
        for tenant in ("tenant-0", "tenant-1")
    ]
    config = tmp_path / "config.json"
    config.write_text(dump_config(make_config(1, PoolConfig(namespace="models", name="pool"), zones)))
    options = ["--tenants", "2", "--blocks", "24", "--policies", "zones", "--zones", str(config)]
    main(["compare", str(documents), *options, "--capacities", "50%", "200%"])
    assert re.search(r"^hit rate with blocks +12 +48$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("name", [b"\xff.jsonl", b"\x1b[2J.jsonl"], ids=["no text", "clears the screen"])
def test_a_file_may_have_any_name(documents, tmp_path, capsys, name):
    source, page = os.fsdecode(os.fsencode(tmp_path) + b"/" + name), tmp_path / "out.html"
    documents.rename(source)
    options = ["--blocks", "40", "--html", str(page)]
    main(["compare", source, *options, "--policies", "salted"])
    main(["rank", source, f"{source},shift=1", "--blocks", "400", "--attain", "0.1"])
    printed = capsys.readouterr().out
    for text in (printed, page.read_text()):
        assert "\N{REPLACEMENT CHARACTER}" in text
        assert "\x1b" not in text
    advice = ["advise", source, "--tenants", "1", "--blocks", "40", "--trials", "0", "--attain", "1%"]
    main([*advice, "--held-out", source])
    assert "\N{REPLACEMENT CHARACTER}" in capsys.readouterr().out


def test_a_service_that_is_ranked_may_have_more_users_than_are_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tenantzone_replay.traces.tenants.MAX_TENANTS", 10)
    path = tmp_path / "trace.jsonl"
    line = {"prompt_tokens": 100, "output_tokens": 8}
    path.write_text("".join(json.dumps(line | {"user_id": each, "timestamp": each}) + "\n" for each in range(40)))
    main(["rank", str(path), "--blocks", "200"])
    assert re.search(r"^trace-0 +1 ", capsys.readouterr().out, re.MULTILINE)
