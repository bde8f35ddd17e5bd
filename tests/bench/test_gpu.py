"""The default group of the bench for GPUs, on real engines on this machine's CPUs."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu.results import read

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The process that ran the group, and the file that it wrote."""
    path = tmp_path_factory.mktemp("bench") / "nano.json"
    command = [sys.executable, "-m", "bench.gpu", "--shape", "nano", "--phases", "default", "--json", path]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False), path


@pytest.fixture(scope="module")
def run(ended):
    return read(ended[1])


@pytest.fixture(scope="module")
def results(run):
    return {phase["name"]: phase["results"] for phase in run["phases"]}


def test_every_phase_is_done(ended, run):
    process, _ = ended
    outcomes = {phase["name"]: (phase["status"], phase["why"]) for phase in run["phases"]}
    assert outcomes == dict.fromkeys(("equal", "noisy", "reclaim", "throughput"), ("done", "")), process.stderr
    assert process.returncode == 0


def test_the_file_says_what_ran_and_how(run):
    assert run["model"] == {"name": "nano", "weights": "dummy"}
    assert run["command"].startswith("python -m bench.gpu --shape nano --phases default --json ")
    assert run["environment"]["packages"]["vllm"]
    assert set(run["engines"]) == {"default/stock", "default/zones"}
    flags = run["engines"]["default/stock"]["command"]
    assert set(flags[flags.index("--served-model-name") :]) <= set(run["engines"]["default/zones"]["command"]) | {
        flags[flags.index("--port") + 1]
    }


@pytest.mark.parametrize(
    ("case", "evidence"),
    [
        ("cold", "of 600 prompt tokens, zones found 0 and stock 0 cached"),
        ("cached", "of 600 prompt tokens, zones found 576 and stock 576 cached"),
        ("after preemption", "preemptions: "),
        ("after tier load", "chunks loaded from the tier: 18; zones found 576 prompt tokens cached"),
    ],
)
def test_zones_answer_as_stock_does(results, case, evidence):
    (row,) = (row for row in results["equal"]["rows"] if row["case"] == case)
    assert evidence in row["note"]
    assert row["happened"]
    assert (row["answers"], row["same_tokens"]) == (3, 3)
    assert row.get("stock_same_tokens") == (3 if case == "after preemption" else None)
    assert row["same_top_logprobs"] == 3
    assert row["largest_difference"] < 1e-3
    assert row["note"].endswith("3 distinct answers"), "an answer must depend on the first half of its prompt"


def test_quiet_tenants_requests_are_answered_in_every_arm(results):
    arms = results["noisy"]["arms"]
    assert sorted((arm["arm"], arm["seed"]) for arm in arms) == sorted(
        (name, seed)
        for name in ("solo, stock", "solo, zones", "stock", "zones", "zones with targets")
        for seed in (1, 2)
    )
    for arm in arms:
        for tenants in arm["tenants"].values():
            assert (tenants["failed"], tenants["errors"]) == (0, [])
            assert len(tenants["first_token_seconds"]) == tenants["requests"]
    assert all(sum(tenants["requests"] for tenants in arm["tenants"].values()) for arm in arms)
    assert {arm["arm"] for arm in arms if arm["flood"]} == {"stock", "zones", "zones with targets"}
    (targets, _) = (arm for arm in arms if arm["target_seconds"])
    assert set(targets["conditions"]) == {"target-1", "target-2", "target-3"}


def test_a_reservation_is_claimed_and_found_again(results):
    rows = {(row["engine"], row["seed"]): row for row in results["reclaim"]["rows"]}
    assert set(rows) == {(engine, seed) for engine in ("stock", "zones") for seed in (1, 2)}
    for seed in (1, 2):
        assert rows["zones", seed]["tokens"] == 3 * 256
        assert rows["zones", seed]["found_again"] == pytest.approx(224 / 256)
        assert rows["stock", seed]["found_again"] == 0


@pytest.mark.parametrize("phase", ["reclaim", "throughput"])
def test_the_order_of_the_engines_turns_with_each_seed(results, phase):
    rows = results[phase]["rows"]
    for seed, order in ((1, ["stock", "zones"]), (2, ["zones", "stock"])):
        engines = [row["engine"] for row in rows if row["seed"] == seed]
        assert engines == order * (len(engines) // 2)


def test_the_order_of_the_arms_turns_with_each_seed(results):
    first, second = ([arm["arm"] for arm in results["noisy"]["arms"] if arm["seed"] == seed] for seed in (1, 2))
    assert first == second[::-1]


def test_throughput_is_measured_at_each_concurrency_with_one_tenant_and_many(results):
    rows = results["throughput"]["rows"]
    assert sorted((row["engine"], row["tenants"], row["concurrency"], row["seed"]) for row in rows) == sorted(
        (engine, tenants, concurrency, seed)
        for engine in ("stock", "zones")
        for tenants in (1, 1000)
        for concurrency in (1, 32, 256)
        for seed in (1, 2)
    )
    assert [(row["failed"], row["errors"]) for row in rows] == [(0, [])] * len(rows)
    assert all(row["tokens_per_second"] for row in rows)
    assert all(row["client_cpu_share"] < 1 for row in rows)
