"""The goals of a GPU run: when they are met, missed, and not measured."""

import pytest

from bench.gpu.report.__main__ import noisy_neighbour, not_complete
from bench.gpu.report.measures import (
    LARGEST_DIFFERENCE,
    Measure,
    at_least,
    at_most,
    equal_answers,
    further_answers,
    judged,
    reclaim,
)
from bench.gpu.report.plots import lines
from tests.bench.gpu_run import outcomes, phase, phase_of, two_seeds


@pytest.fixture
def run():
    return two_seeds()


def case(name, **more):
    """A case in which all ten answers are the same."""
    equal = {"answers": 10, "same_tokens": 10, "same_top_logprobs": 10, "largest_difference": 0.0}
    return {"case": name, **equal, "happened": True, **more}


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


@pytest.fixture
def equal_rows(run):
    rows = {name: case(name) for name in ("cold", "cached", "after preemption", "after tier load")}
    run["phases"] = [phase("equal", {"rows": list(rows.values())})]
    return rows


def test_answers_must_be_equal_in_each_case(run, equal_rows):
    assert equal_answers(run).outcome == "met"
    run["phases"][0]["results"]["rows"].pop()
    assert equal_answers(run).outcome == "not measured"
    assert equal_answers(run).measured.endswith("after tier load: not measured")


@pytest.mark.parametrize("name", ["cold", "cached", "after preemption", "after tier load"])
def test_only_after_a_preemption_it_is_enough_that_stock_differs_from_itself_as_often(run, equal_rows, name):
    equal_rows[name] |= {"same_tokens": 9, "stock_same_tokens": 9}
    assert equal_answers(run).outcome == ("met" if name == "after preemption" else "missed")
    equal_rows[name]["same_tokens"] = 8
    assert equal_answers(run).outcome == "missed"


@pytest.mark.parametrize("fault", [{"happened": False}, {"answers": 0, "same_tokens": 0}])
def test_a_case_that_did_not_happen_is_not_measured(run, equal_rows, fault):
    equal_rows["after tier load"] |= fault
    assert equal_answers(run).outcome == "not measured"
    assert equal_answers(run).measured.endswith("after tier load: not measured")


def test_the_same_tokens_with_other_log_probabilities_are_not_the_same_answer(run, equal_rows):
    equal_rows["cached"]["largest_difference"] = LARGEST_DIFFERENCE
    assert equal_answers(run).outcome == "met"
    equal_rows["cached"]["largest_difference"] = 1.5
    assert equal_answers(run).outcome == "missed"
    assert "cached: 10 of 10, log probabilities 1.5 apart" in equal_answers(run).measured


@pytest.mark.parametrize(
    ("cached", "status", "outcome"),
    [(3, "done", "met"), (2, "done", "missed"), (3, "timed out", "not measured: hybrid: timed out")],
)
def test_answers_of_a_further_group_must_be_equal_in_each_column(run, cached, status, outcome):
    row = {"engine": "zones", "answers": 3, "same as stock, cold": 3, "same as stock, cached": 3}
    rows = [{**row, "engine": "stock"}, row, {**row, "same as stock, cached": cached}]
    run["phases"] = [phase("hybrid", {"rows": rows}, group="hybrid", status=status)]
    (measure,) = further_answers(run)
    assert measure == Measure("the same answers as stock, hybrid", f"cold: 6 of 6; cached: {3 + cached} of 6", outcome)
    assert measure in judged(run)


def test_answers_without_a_case_are_counted_without_a_name(run):
    run["phases"] = [phase("tier", {"rows": [{"engine": "zones", "answers": 3, "same as stock": 3}]}, group="tier")]
    (measure,) = further_answers(run)
    assert measure.measured == "3 of 3"


def test_a_run_without_a_gpu_is_not_judged(run, equal_rows):
    name = "the same answers as stock, in each case"
    assert outcomes(run)[name] == "met"
    run["environment"]["card"] = None
    assert outcomes(run)[name] == "not judged: no GPU"
    assert outcomes(run)["reclaim of 36,000 tokens"] == "not measured"


def test_results_of_a_phase_that_did_not_complete_are_shown_and_not_judged(run):
    phase_of(run, "noisy")["status"] = "timed out"
    assert outcomes(run)["flood's tokens/s without a target, to stock"] == "not measured: noisy: timed out"
    assert "| zones | plain | 3 |" in noisy_neighbour(run)
    assert "| default | noisy | timed out | 2 | – | yes |" in not_complete(run)


FLOOD_GOALS = ("flood's tokens/s without a target, to stock", "flood's tokens/s with a target, to stock")


def test_no_measure_with_failed_requests_is_met(run):
    tenants = phase_of(run, "noisy")["results"]["arms"][2]["tenants"]["plain"]
    assert not any(outcomes(run)[goal].startswith("not measured") for goal in FLOOD_GOALS)
    tenants |= {"requests": 4, "failed": 3, "errors": ["refused", "reset"]}
    said = "stock: 3 of 5 requests failed (refused)"
    assert [outcomes(run)[goal] for goal in FLOOD_GOALS] == [f"not measured: {said}"] * 2
    assert f"- {said}" in noisy_neighbour(run).splitlines()
    assert "stock\n3 of 5 requests failed" in [line.label for line in lines(run)]


@pytest.mark.parametrize("name", ["solo, zones", "zones", "zones with targets"])
def test_failures_count_in_each_arm_that_a_ratio_to_solo_divides(run, name):
    first = next(each for each in phase_of(run, "noisy")["results"]["arms"] if each["arm"] == name)
    first["tenants"]["plain"] |= {"requests": 4, "failed": 1}
    with_target = outcomes(run)["TTFT p99 with a target, to solo"]
    without = outcomes(run)["TTFT p99 without a target, to solo"]
    assert with_target.startswith("not measured") is (name != "zones")
    assert without.startswith("not measured") is (name != "zones with targets")
