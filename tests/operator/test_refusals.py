"""A permanent refusal by the API server affects one object only."""

import pytest

from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.writing.refusals import RETRY_SECONDS, Refusals


def test_the_same_is_tried_again_slowly_and_something_else_at_once():
    refusals = Refusals()
    assert refusals.retry_seconds(0.0) is None
    assert refusals.note("uid", "bad", 0.0)
    assert not refusals.may_try("uid", "bad", RETRY_SECONDS - 1)
    assert refusals.may_try("uid", "other", 0.0)
    assert refusals.may_try("another", "bad", 0.0)
    assert refusals.retry_seconds(4.0) == RETRY_SECONDS - 4
    assert refusals.may_try("uid", "bad", RETRY_SECONDS)
    assert refusals.retry_seconds(2 * RETRY_SECONDS) == 0.0


def test_it_is_news_once():
    refusals = Refusals()
    assert [refusals.note("uid", what, 0.0) for what in ("bad", "bad", "worse", "worse")] == [True, False, True, False]


def test_what_was_written_or_is_gone_is_forgotten():
    refusals = Refusals()
    for uid in ("written", "gone", "stays"):
        refusals.note(uid, "bad", 0.0)
    refusals.done("written")
    refusals.keep({"stays", "written"})
    assert [refusals.may_try(uid, "bad", 0.0) for uid in ("written", "gone", "stays")] == [True, True, False]


@pytest.mark.parametrize("status", [400, 403, 422])
def test_what_is_no_matter_of_time_lasts(status: int):
    assert RestError(status, "no").is_lasting


@pytest.mark.parametrize("status", [401, 404, 409, 429, 500, 503])
def test_what_another_look_or_time_may_settle_does_not(status: int):
    assert not RestError(status, "not now").is_lasting
