"""The report of a GPU run: its figures, its tables, its measures, and its plots."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import markdown_table
from bench.gpu.groups import GROUPS
from bench.gpu.report.__main__ import (
    document,
    environment,
    main,
    measures,
    noisy_neighbour,
    not_complete,
    throughput,
)
from bench.gpu.report.figures import first_token_to_solo, flood_rate, flood_to_stock, pooled, throughput_to_stock
from bench.gpu.report.plots import bars, draw, draw_first_tokens, draw_rates, lines
from bench.gpu.results import read
from bench.gpu.shapes import SHAPES
from tests.bench.gpu_run import FIRST, arm, cell, outcomes, phase, phase_of, raw, two_seeds

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "bench" / "gpu" / "results"


@pytest.fixture
def run():
    return two_seeds()


def test_raw_times_of_all_seeds_are_pooled(run):
    assert pooled(run, "zones", "first_token").raw == (4.0, 5.0, 6.0)
    assert pooled(run, "zones", "first_token").p50 == 5.0
    assert pooled(run, "zones", "token").p50 == 0.5
    assert pooled(run, "zones with targets", "first_token", ("target",)).raw == (2.0, 3.0)
    assert pooled(run, "solo, stock", "first_token") is None


def test_percentiles_without_raw_times_are_used_as_they_are_and_never_pooled(run):
    stated = {"requests": 1, "failed": 0, "first_token": {"p50": 7.0, "p99": 8.0}}
    one = arm("solo, stock", 1, plain=stated)
    phase_of(run, "noisy")["results"]["arms"].append(one)
    assert (pooled(run, "solo, stock", "first_token").p50, pooled(run, "solo, stock", "first_token").p99) == (7.0, 8.0)
    phase_of(run, "noisy")["results"]["arms"].append({**one, "seed": 2})
    assert pooled(run, "solo, stock", "first_token") is None


def test_first_tokens_are_compared_with_the_same_engine_without_the_flood(run):
    solo = pooled(run, "solo, zones", "first_token").p99
    assert first_token_to_solo(run, "zones") == pooled(run, "zones", "first_token").p99 / solo
    # The arm without the flood has not measured tenants with targets separately.
    assert first_token_to_solo(run, "zones with targets", ("target",)) == pytest.approx(2.99 / solo)
    assert first_token_to_solo(run, "stock") is None


def test_rates_are_means_over_seeds_and_ratios_are_to_stock(run):
    assert flood_to_stock(run, "zones") == pytest.approx(0.8)
    assert throughput_to_stock(run, 1, 256) == pytest.approx(0.98)
    assert throughput_to_stock(run, 1000, 256) is None


def test_failed_requests_of_the_throughput_phase_are_counted_and_drawn(run):
    goal = "tokens/s at 256 requests, 1 zone, to stock"
    assert outcomes(run)[goal] == "met"
    phase_of(run, "throughput")["results"]["rows"][1] |= {"failed": 2, "errors": ["full"]}
    assert outcomes(run)[goal] == "not measured: stock: failed requests: 2 (full)"
    assert "| 0.98 | 2 | 0 |" in throughput(run)
    assert throughput(run).endswith("- tenants: 1, requests at once: 256, stock: failed requests: 2 (full)")
    assert bars(run)[0] == ["256\n1 zone\nfailed requests: 2"]


def test_a_seed_without_tokens_enters_no_mean(run):
    phase_of(run, "throughput")["results"]["rows"][1]["tokens_per_second"] = 0.0
    phase_of(run, "noisy")["results"]["arms"][3]["flood"]["tokens_per_second"] = 0.0
    assert throughput_to_stock(run, 1, 256) is None
    assert flood_rate(run, "stock") is None
    assert "stock: no tokens with seed 2" in throughput(run)
    assert "- stock: no tokens with seed 2" in noisy_neighbour(run)
    assert outcomes(run)["tokens/s at 256 requests, 1 zone, to stock"] == "not measured: stock: no tokens with seed 2"


def test_tenants_without_requests_are_named(run):
    phase_of(run, "noisy")["results"]["arms"][5]["tenants"]["plain"] = raw()
    assert "- zones: no tokens with seed 2" in noisy_neighbour(run)


@pytest.mark.parametrize(("tokens", "remark"), [(31, ""), (30, ""), (24, " (77% measured)")])
def test_missing_times_between_tokens_are_shown(run, tokens, remark):
    tenants = phase_of(run, "noisy")["results"]["arms"][-1]["tenants"]["target"]
    tenants["token_seconds"] = [0.03] * (2 * tokens)
    row = next(row for row in noisy_neighbour(run).splitlines() if "target 40 ms" in row)
    assert f"| 30.0{remark} | 30.0{remark} |" in row


def test_each_arm_has_a_row_for_each_kind_of_tenants_and_names_what_is_reported_of_targets(run):
    rows = noisy_neighbour(run).splitlines()
    firsts = [tuple(part.strip() for part in row.split("|")[1:4]) for row in rows if row.startswith("|")][2:]
    assert firsts == [
        ("stock", "plain", "2"),
        ("solo, zones", "plain", "3"),
        ("zones", "plain", "3"),
        ("zones with targets", "plain", "1"),
        ("zones with targets", "target 40 ms", "2"),
    ]
    assert rows[-1] == "- zones with targets, seed 1: t1: TooSlow"


def test_throughput_names_the_busiest_client(run):
    assert throughput(run).splitlines()[-1] == "| 1 | 256 | 150 | 147 | 0.98 | 0 | 0 | 20% | 10% |"


def test_further_phases_have_columns_of_their_own_and_phases_without_results_a_reason(run):
    text = document(run)
    assert "## Tier\n\n| state | ms | bytes |\n|---|---|---|\n| cold | 1.5 | – |\n| hit | – | 2,048 |\n" in text
    assert "| default | reclaim | timed out | 2 | slow engine | no |" in text
    assert "## Reclaim" not in text


def test_a_further_phase_shows_its_model_and_each_of_its_lists_without_nested_values(run):
    results = {
        "model": {"name": "small", "weights": "real"},
        "rows": [{"engine": "stock", "same": True}],
        "starts": [{"way": "graphs", "why": "a\nb", "commands": {"stock": ["vllm"]}}],
    }
    run["phases"] = [phase("graphs", results, group="graphs")]
    expected = """## Graphs

Model: small, real weights.

| engine | same |
|---|---|
| stock | yes |

| way | why |
|---|---|
| graphs | a b |
"""
    assert document(run).endswith(expected)


def test_a_long_reason_keeps_its_beginning_and_its_end(run):
    run["phases"] = [phase("equal", {}, status="failed", why=f"EngineError {'log ' * 1000} OutOfMemory")]
    row = document(run).splitlines()[-1]
    assert "| EngineError log" in row
    assert row.endswith("OutOfMemory | no |")
    assert len(row) < 500


def test_a_long_reason_keeps_its_last_error(run):
    log = ["EngineError: ended", *["log"] * 300, "pid=1 OutOfMemoryError: no room", *["shutting down"] * 300]
    run["phases"] = [phase("equal", {}, status="failed", why="\n".join(log))]
    assert not_complete(run).endswith(" … OutOfMemoryError: no room | no |")


def test_a_reason_that_phases_of_a_group_share_stands_once(run):
    run["phases"] = [phase(name, {}, status="failed", why="no engine") for name in ("equal", "noisy")]
    run["phases"].append(phase("tier", {}, group="tier", status="failed", why="no engine"))
    assert not_complete(run).splitlines()[2:] == [
        "| default | equal, noisy | failed | 2, 2 | no engine | no |",
        "| tier | tier | failed | 2 | no engine | no |",
    ]


def test_an_engines_command_can_be_typed_again_and_names_no_folder_of_the_interpreter(run):
    command = ["/home/me/bin/python", "-m", "vllm", "--compilation-config", '{"mode": 0}']
    run["engines"] = {"graphs/stock": {"command": command, "ready_seconds": 1.25}}
    expected = """- graphs/stock: ready after 1.2 s; `python -m vllm --compilation-config '{"mode": 0}'`"""
    assert expected in environment(run)


def test_bars_in_a_cell_do_not_end_it():
    assert markdown_table(("a",), [("x|y",)]).splitlines()[-1] == r"| x\|y |"


def test_the_first_plot_distinguishes_tenants_with_and_without_a_target(run):
    drawn = {line.label: line.style for line in lines(run)}
    assert drawn == {
        "stock": "-",
        "solo, zones": ":",
        "zones": "-",
        "zones with targets,\ntenants without a target": "--",
        "zones with targets,\ntenants with a target": "-",
    }


def test_a_plot_without_figures_is_not_drawn(run, tmp_path):
    run["phases"] = [phase("throughput", {"rows": [cell("stock", 1, 1, 100)]})]
    draw(run, tmp_path, "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run-tokens-per-second.svg"]


@pytest.mark.parametrize("draw_one", [draw_first_tokens, draw_rates])
def test_the_same_run_makes_the_same_picture(run, draw_one, tmp_path):
    for source in (run, read(FIRST)):
        pictures = [tmp_path / name for name in ("one.svg", "other.svg")]
        for path in pictures:
            draw_one(source, path)
        assert pictures[0].read_bytes() == pictures[1].read_bytes()
        assert "<svg" in pictures[0].read_text()


def test_the_command_prints_the_committed_report_and_writes_both_plots(tmp_path):
    command = [sys.executable, "-m", "bench.gpu.report", FIRST, "--plots", tmp_path]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == FIRST.with_suffix(".md").read_text()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in RESULTS.glob(f"{FIRST.stem}*.svg")}
    assert len(names) == 2


def without_answers(content):
    phase_of(content, "equal")["results"]["rows"][0].pop("answers")
    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "expected a result of bench.gpu with format 1"),
        ({"format": 1}, "not a whole result of bench.gpu: 'environment' is missing"),
        (without_answers(json.loads(FIRST.read_text())), "not a whole result of bench.gpu: 'answers' is missing"),
    ],
)
def test_a_file_that_is_no_whole_run_is_named(tmp_path, monkeypatch, capsys, content, said):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    assert exit_code(monkeypatch, path) == 2
    assert capsys.readouterr().err == f"bench.gpu.report: {path}: {said}\n"


def exit_code(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["report", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("folder", [".", "below"])
def test_a_folder_for_plots_that_cannot_be_made_is_named(tmp_path, monkeypatch, capsys, folder):
    file = tmp_path / "file"
    file.touch()
    assert exit_code(monkeypatch, FIRST, "--plots", file / folder) == 2
    assert capsys.readouterr().err.startswith(f"bench.gpu.report: the folder {file / folder} for the plots cannot be")


def test_a_run_without_figures_says_that_it_draws_nothing(run, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**run, "phases": []}))
    monkeypatch.setattr(sys, "argv", ["report", str(path), "--plots", str(tmp_path / "plots")])
    main()
    assert "no plot was written" in capsys.readouterr().err


def test_the_documentation_says_how_long_the_loads_last_by_design():
    load, seeds = SHAPES["8b"].load, 2
    noisy = seeds * (2 * load.solo_warm_seconds + 3 * load.warm_seconds + 5 * load.window_seconds)
    windows = load.throughput_seconds.values()
    throughput = seeds * 4 * sum(load.throughput_warm_seconds + window for window in windows)
    reclaim = seeds * 2 * load.reclaim_warm_seconds
    page = " ".join((REPOSITORY / "docs" / "gpu.md").read_text().split())
    each = f"{noisy:g} s in `noisy`, {throughput:g} s in `throughput` and {reclaim:g} s in `reclaim`"
    assert f"last {noisy + throughput + reclaim:g} s by design: {each}" in page
    limits = [sum(phase.limit_seconds for phase in group.phases) for group in GROUPS]
    assert f"add up to {limits[0]:g} s, and those of `all` groups to {sum(limits):,.0f} s" in page


def test_the_documentation_names_each_phase_and_its_time_limit():
    page = (REPOSITORY / "docs" / "gpu.md").read_text()
    rows = {tuple(part.strip(" `") for part in row.split("|")[1:4]) for row in page.splitlines() if row.count("|") == 5}
    phases = {(group.name, each.name, f"{each.limit_seconds:g}") for group in GROUPS for each in group.phases}
    assert phases - rows == set()
    assert {row[1] for row in rows if row[2].isdecimal()} - {phase[1] for phase in phases} == set()


@pytest.mark.parametrize("part", [measures, noisy_neighbour, throughput])
def test_the_documentation_shows_the_figures_of_the_first_results(part):
    assert part(read(FIRST)) in (REPOSITORY / "docs" / "gpu.md").read_text()


def test_the_first_results_have_the_figures_of_the_raw_files():
    rows = {row["what"]: row for row in json.loads((RESULTS / "2026-11-27-h100-measure-1.json").read_text())}
    converted = read(FIRST)
    for name, what in {
        "solo, stock": "solo, stock",
        "solo, zones": "solo, zones",
        "stock": "noisy, stock",
        "zones": "noisy, zones",
        "zones with targets": "noisy, zones, target 40 ms",
    }.items():
        for kind, unit in (("first_token", "ttft"), ("token", "token")):
            times = pooled(converted, name, kind)
            expected = [rows[what][f"{unit}_{each}_ms"] / 1000 for each in ("p50", "p99")]
            assert [times.p50, times.p99] == pytest.approx(expected, abs=0.00005)
