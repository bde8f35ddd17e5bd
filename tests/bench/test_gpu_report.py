"""The report of a GPU run: its figures, its tables, its measures, and its plots."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu.figures import first_token_to_solo, flood_to_stock, pooled, throughput_to_stock
from bench.gpu.groups import GROUPS
from bench.gpu.measures import at_least, at_most, equal_answers, reclaim
from bench.gpu.plots import draw, draw_first_tokens, draw_rates, lines
from bench.gpu.report import document, environment, measures, noisy_neighbour, table, throughput
from bench.gpu.results import read

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "bench" / "gpu" / "results"
FIRST = RESULTS / "2026-11-27-h100.json"


def raw(*seconds):
    return {
        "requests": len(seconds),
        "failed": 0,
        "first_token_seconds": list(seconds),
        "token_seconds": [each / 10 for each in seconds],
    }


def arm(name, seed, *, flood=None, target=None, conditions=None, **tenants):
    rates = None if flood is None else {"tokens_per_second": flood, "requests_per_second": 1.0}
    return {
        "arm": name,
        "seed": seed,
        "window_seconds": 1.0,
        "tenants": tenants,
        "flood": rates,
        "target_seconds": target,
        "conditions": conditions or {},
    }


def phase(name, results, *, group="default", status="done", why=""):
    return {
        "group": group,
        "name": name,
        "status": status,
        "why": why,
        "seconds": 1.0,
        "limit_seconds": 2.0,
        "results": results,
    }


def cell(engine, tenants, seed, rate):
    return {
        "engine": engine,
        "tenants": tenants,
        "concurrency": 256,
        "seed": seed,
        "tokens_per_second": rate,
        "window_seconds": 1.0,
        "failed": 0,
        "client_cpu_share": 0.1 * seed,
    }


def case(name, answers, same, **more):
    return {"case": name, "answers": answers, "same_tokens": same, "same_top_logprobs": same, **more}


@pytest.fixture
def run():
    """A run with two seeds, in the environment of the first results."""
    arms = [
        arm("solo, zones", 1, plain=raw(1.0, 2.0), target=None),
        arm("solo, zones", 2, plain=raw(3.0), target=None),
        arm("stock", 1, flood=90.0, plain=raw(50.0)),
        arm("stock", 2, flood=110.0, plain=raw(60.0)),
        arm("zones", 1, flood=70.0, plain=raw(4.0, 5.0)),
        arm("zones", 2, flood=90.0, plain=raw(6.0)),
    ]
    with_targets = arm("zones with targets", 1, flood=60.0, target=0.04, conditions={"t1": "TooSlow"}, plain=raw(9.0))
    with_targets["tenants"]["target"] = raw(2.0, 3.0)
    return {
        **json.loads(FIRST.read_text()),
        "phases": [
            phase("noisy", {"arms": [*arms, with_targets]}),
            phase(
                "throughput", {"rows": [cell("stock", 1, 1, 100), cell("stock", 1, 2, 200), cell("zones", 1, 1, 147)]}
            ),
            phase("tier", {"rows": [{"state": "cold", "ms": 1.5}, {"state": "hit", "bytes": 2048}]}, group="tier"),
            phase("reclaim", {}, status="timed out", why="slow\nengine"),
        ],
    }


def phase_of(run, name):
    return next(each for each in run["phases"] if each["name"] == name)


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
    # The arm without the flood has not measured tenants with targets apart.
    assert first_token_to_solo(run, "zones with targets", ("target",)) == pytest.approx(2.99 / solo)
    assert first_token_to_solo(run, "stock") is None


def test_rates_are_means_over_seeds_and_ratios_are_to_stock(run):
    assert flood_to_stock(run, "zones") == pytest.approx(0.8)
    assert throughput_to_stock(run, 1, 256) == pytest.approx(0.98)
    assert throughput_to_stock(run, 1000, 256) is None


def test_a_goal_is_met_at_its_limit_and_missed_beyond_it():
    assert at_most("x", 1.15, 1.15).outcome == at_least("x", 0.98, 0.98).outcome == "met"
    assert at_most("x", 1.15, 1.16).outcome == at_least("x", 0.98, 0.97).outcome == "missed"
    assert at_most("x", 1.15, None).outcome == at_least("x", 0.98, None).outcome == "not measured"


def test_the_slowest_seed_decides_about_a_reclaim(run):
    row = {"engine": "zones", "tokens": 36_000, "found_again": 1.0}
    rows = [{**row, "seed": 1, "slowest_seconds": 0.4}, {**row, "seed": 2, "slowest_seconds": 0.6}]
    run["phases"] = [phase("reclaim", {"rows": rows})]
    assert (reclaim(run).measured, reclaim(run).outcome) == ("0.600 s", "missed")


def test_a_reclaim_of_another_size_says_nothing_about_the_goal(run):
    row = {"engine": "zones", "seed": 1, "tokens": 768, "slowest_seconds": 0.1, "found_again": 1.0}
    run["phases"] = [phase("reclaim", {"rows": [row]})]
    assert reclaim(run).outcome == "not measured"


def test_answers_must_be_equal_in_each_case_as_often_as_stock_agrees_with_itself(run):
    rows = [case(name, 10, 10) for name in ("cold", "cached", "after preemption")]
    run["phases"] = [phase("equal", {"rows": rows})]
    assert equal_answers(run).outcome == "not measured"
    rows.append(case("after tier load", 10, 9))
    assert equal_answers(run).outcome == "missed"
    rows[-1]["stock_same_tokens"] = 9
    assert equal_answers(run).outcome == "met"
    rows[-1] |= {"answers": 0, "same_tokens": 0, "stock_same_tokens": 0}
    assert equal_answers(run).outcome == "not measured"


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
    assert throughput(run).splitlines()[-1] == "| 1 | 256 | 150 | 147 | 0.98 | 20% | 10% |"


def test_further_phases_have_columns_of_their_own_and_phases_without_results_a_reason(run):
    text = document(run)
    assert "## Tier\n\n| state | ms | bytes |\n|---|---|---|\n| cold | 1.5 | – |\n| hit | – | 2,048 |\n" in text
    assert "| default | reclaim | timed out | 2 | slow engine |" in text
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
    assert row.endswith("OutOfMemory |")
    assert len(row) < 500


def test_an_engines_command_can_be_typed_again_and_names_no_folder_of_the_interpreter(run):
    command = ["/home/me/bin/python", "-m", "vllm", "--compilation-config", '{"mode": 0}']
    run["engines"] = {"graphs/stock": {"command": command, "ready_seconds": 1.25}}
    expected = """- graphs/stock: ready after 1.2 s; `python -m vllm --compilation-config '{"mode": 0}'`"""
    assert expected in environment(run)


def test_bars_in_a_cell_do_not_end_it():
    assert table(("a",), [("x|y",)]).splitlines()[-1] == r"| x\|y |"


def test_the_first_plot_tells_tenants_with_and_without_a_target_apart(run):
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
    assert names == {path.name for path in RESULTS.glob("2026-11-27-h100*.svg")}
    assert len(names) == 2


def test_a_file_that_is_no_run_is_named(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("[]")
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu.report", path], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("bench.gpu.report: ")
    assert str(path) in done.stderr


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
