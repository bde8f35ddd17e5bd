"""Which difference between two runs counts."""

import pytest

from hack.conformance.comparison import Outcome, compare, describe, read_reasons
from hack.conformance.kinds import by_kind

PASSED = Outcome("passed")
FAILED = Outcome("failed", "assert 1 == 2", "test_x.py:7: in test_x\nE   assert 1 == 2")
SKIPPED = Outcome("skipped", "no GPU")


def test_what_passes_with_both_conforms():
    comparison = compare({"a": PASSED, "b": FAILED}, {"a": PASSED, "b": FAILED})
    assert comparison.conforms
    assert (comparison.passed, list(comparison.neither)) == (["a"], ["b"])


def test_a_test_that_fails_with_ours_is_named_with_what_it_says():
    comparison = compare({"a": PASSED, "b": PASSED}, {"a": PASSED, "b": FAILED})
    assert not comparison.conforms
    lines = "\n".join(describe(comparison))
    assert "    1 passed with stock only" in lines
    assert "b: failed" in lines
    assert FAILED.details in lines


def test_a_skip_is_no_pass():
    assert compare({"a": PASSED, "b": PASSED}, {"a": PASSED, "b": SKIPPED}).stock_only == {"b": SKIPPED}


def test_a_test_that_ours_never_ran_is_a_difference():
    assert list(compare({"a": PASSED, "b": PASSED}, {"a": PASSED}).stock_only) == ["b"]


def test_what_passes_with_ours_only_is_reported_and_conforms():
    comparison = compare({"a": PASSED, "b": FAILED}, {"a": PASSED, "b": PASSED})
    assert comparison.conforms
    assert comparison.ours_only == ["b"]


def test_nothing_that_passed_proves_nothing():
    assert not compare({}, {}).conforms
    assert not compare({"a": FAILED}, {"a": FAILED}).conforms


def test_failures_with_both_are_counted_by_reason_and_skips_apart():
    outcomes = {"a": PASSED, "b": FAILED, "c": FAILED, "d": SKIPPED}
    lines = list(describe(compare(outcomes, outcomes)))
    assert "    2 failed with stock classes, too" in lines
    assert "    1 skipped with stock classes, too" in lines
    assert "    2 assert 1 == 2" in lines
    assert "    1 no GPU" in lines


def test_a_difference_with_a_reason_conforms_and_is_reported_with_it():
    comparison = compare({"a": PASSED, "b": PASSED}, {"a": PASSED, "b": FAILED}, {"b": "Not for zones."})
    assert comparison.conforms
    assert (comparison.explained, comparison.stock_only) == ({"b": "Not for zones."}, {})
    lines = list(describe(comparison))
    assert "    1 passed with stock only, for a reason that is known" in lines
    assert lines[-2:] == ["\nPassed with stock only. Not for zones.", "  b"]


def test_a_reason_covers_no_other_test():
    comparison = compare(
        {"a": PASSED, "b": PASSED, "c": PASSED}, {"a": PASSED, "b": FAILED, "c": FAILED}, {"b": "Not for zones."}
    )
    assert not comparison.conforms
    assert comparison.stock_only == {"c": FAILED}


@pytest.mark.parametrize("stock", [{"a": PASSED, "b": PASSED}, {"a": PASSED, "b": FAILED}, {"a": PASSED}])
def test_a_reason_for_what_does_not_differ_is_a_failure_and_named(stock):
    comparison = compare(stock, stock, {"b": "Not for zones."})
    assert not comparison.conforms
    assert "  b" in list(describe(comparison))


def test_reasons_are_read_by_test(tmp_path):
    table = tmp_path / "reasons.toml"
    table.write_text('[[difference]]\nreason = """\nNot for zones.\n"""\ntests = ["a", "b"]\n')
    assert read_reasons(table, "1.0") == {"a": "Not for zones.", "b": "Not for zones."}


def test_a_difference_is_known_from_the_version_on_that_brings_it(tmp_path):
    table = tmp_path / "reasons.toml"
    table.write_text('[[difference]]\nsince = "0.10"\nreason = "It is new."\ntests = ["a"]\n')
    assert read_reasons(table, "0.10.0") == {"a": "It is new."}
    assert read_reasons(table, "0.9.9") == {}


def test_each_kind_has_the_tests_that_are_named_for_it():
    stock = dict.fromkeys(
        (
            "test_swa_free.py::test_eagle",
            "test_a.py::test_Mamba_group",
            "test_a.py::test_lora",
            "test_a.py::test_respect",
        ),
        PASSED,
    )
    ours = stock | {"test_a.py::test_Mamba_group": FAILED, "test_a.py::test_lora": FAILED}
    lines = list(by_kind(compare(stock, ours, {"test_a.py::test_lora": "it is so"})))
    counts = {line[:43].strip(): tuple(map(int, line[43:].split())) for line in lines[1:]}
    assert {kind: found for kind, found in counts.items() if found[0]} == {
        "several groups of KV caches": (1, 0, 0, 1),
        "sliding windows, chunked local attention": (1, 1, 0, 0),
        "Mamba, linear attention": (1, 0, 0, 1),
        "speculative decoding": (1, 1, 0, 0),
        "LoRA": (1, 0, 1, 0),
        "all": (4, 2, 1, 1),
    }
