"""Which difference between two runs counts."""

from conformance.comparison import Outcome, compare, describe

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


def test_what_passes_with_ours_only_is_told_and_conforms():
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
