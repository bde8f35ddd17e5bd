"""The end-to-end benchmark compares round by round, and reports whether the targets hold."""

import pytest

from bench.end_to_end.results import Round, Run, pooled_ratio, ratios, tables
from bench.figures import percentile


def one_round(throughput=10.0, first_token=(100.0,)):
    run = Run(throughput, throughput * 32, 50.0, tuple(first_token))
    return Round(saturated=run, steady=run)


def test_a_percentile_lies_between_the_two_nearest_values():
    values = [30.0, 10.0, 20.0]
    assert percentile(values, 0) == 10
    assert percentile(values, 50) == 20
    assert percentile(values, 75) == 25
    assert percentile(values, 100) == 30


def test_each_round_is_compared_with_the_same_round_of_the_first_engine():
    stock = [one_round(10), one_round(20)]
    zones = [one_round(9), one_round(22)]
    assert ratios(zones, stock, "requests/s") == pytest.approx([0.9, 1.1])


def test_pooled_percentiles_are_of_all_rounds_requests_and_not_of_the_rounds():
    stock = [one_round(first_token=[10.0] * 99), one_round(first_token=[1000.0])]
    zones = [one_round(first_token=[10.0] * 99), one_round(first_token=[2000.0])]
    assert pooled_ratio(zones, stock, "steady", 50) == 1
    assert pooled_ratio(zones, stock, "steady", 100) == 2


def test_the_tables_show_each_round_of_each_engine_and_judge_all_but_the_first():
    text = tables({"stock": [one_round(10)], "1 zone": [one_round(9.95, [101.0])]})
    assert [line.split()[:2] for line in text.splitlines()[1:3]] == [["1", "stock"], ["1", "1"]]
    assert "throughput, median of the rounds: 0.995; the target is at least 0.99: holds" in text
    assert text.count("holds") == 3


def test_a_missed_target_is_called_so():
    text = tables({"stock": [one_round(10)], "1 zone": [one_round(9.8, [103.0])]})
    assert text.count("missed") == 3
