"""A client that does something wrong is not reported as working, nor is an error reported as clear."""

import pytest

from bench.kubernetes_clients.verdicts import Figures, Finding, Verdict, costs, judge, matrix


@pytest.mark.parametrize(
    ("error", "as_asked", "verdict"),
    [
        (None, True, Verdict.WORKS),
        (None, False, Verdict.WRONG),
        ("ConfigError: Proxy-URL is not supported", True, Verdict.REFUSED),
        ("KeyError: 'x'", True, Verdict.FAILS),
        ("KeyError: 'x'", False, Verdict.FAILS),
    ],
)
def test_a_verdict_is_on_what_was_done_and_said(error, as_asked, verdict):
    assert judge(error, as_asked=as_asked, names="proxy-url").verdict == verdict


def test_an_error_is_shown_in_one_short_line():
    assert judge("one\n  two" + "!" * 1000, as_asked=True, names="x").error.startswith("one two!!!")
    assert len(judge("!" * 1000, as_asked=True, names="x").error) < 200


def test_a_table_has_each_client_under_its_name_and_errors_below():
    works, fails = Finding(Verdict.WORKS), Finding(Verdict.FAILS, "KeyError: 'x'")

    title, first, second, _, *errors = matrix({"a": {"one": works, "two": fails}, "b": {"one": works, "two": works}})

    assert title.split() == ["a", "b"]
    assert first.split() == ["one", "works", "works"]
    assert second.split() == ["two", "fails", "works"]
    assert [line.index("works", title.index("b")) for line in (first, second)] == [title.index("b")] * 2
    assert errors == ["a, two: KeyError: 'x'"]


def test_costs_are_shown_in_a_line_for_each_client():
    _, line = costs({"a": Figures(0.5, 40, 50.4, 1000, 1.25)})

    assert line.split() == ["a", "0.50", "40", "50", "1000", "1.25"]
