"""A client that does something wrong is not reported as working, nor is an error reported as clear."""

import pytest

from bench.kubernetes_clients.outcomes import Figures, Finding, Outcome, costs, judge, matrix


@pytest.mark.parametrize(
    ("error", "as_asked", "outcome"),
    [
        (None, True, Outcome.WORKS),
        (None, False, Outcome.WRONG),
        ("ConfigError: Proxy-URL is not supported", True, Outcome.REFUSED),
        ("KeyError: 'x'", True, Outcome.FAILS),
        ("KeyError: 'x'", False, Outcome.FAILS),
    ],
)
def test_a_verdict_is_on_what_was_done_and_said(error, as_asked, outcome):
    assert judge(error, as_asked=as_asked, names="proxy-url").outcome == outcome


def test_an_error_is_shown_in_one_short_line():
    assert judge("one\n  two" + "!" * 1000, as_asked=True, names="x").error.startswith("one two!!!")
    assert len(judge("!" * 1000, as_asked=True, names="x").error) < 200


def test_a_table_has_each_client_under_its_name_and_errors_below():
    works, fails = Finding(Outcome.WORKS), Finding(Outcome.FAILS, "KeyError: 'x'")

    title, first, second, _, *errors = matrix({"a": {"one": works, "two": fails}, "b": {"one": works, "two": works}})

    assert title.split() == ["a", "b"]
    assert first.split() == ["one", "works", "works"]
    assert second.split() == ["two", "fails", "works"]
    assert [line.index("works", title.index("b")) for line in (first, second)] == [title.index("b")] * 2
    assert errors == ["a, two: KeyError: 'x'"]


def test_costs_are_shown_in_a_line_for_each_client():
    _, line = costs({"a": Figures(0.5, 40, 50.4, 1000, 1.25)})

    assert line.split() == ["a", "0.50", "40", "50", "1000", "1.25"]
