"""Each refusal says why, and what to do about it."""

import pytest

from tenantzone_runtime.frontend.routes import ROUTES, Access
from tenantzone_runtime.unsupported import UNSUPPORTED

REFUSED = [route for route in ROUTES if route.access is Access.REFUSED]
FIELDS = {(name, reason) for route in ROUTES for name, reason in route.refused_fields.items()}


@pytest.mark.parametrize("unsupported", UNSUPPORTED, ids=lambda each: each.feature)
def test_what_an_engine_refuses_has_a_reason_and_a_way_out(unsupported):
    assert unsupported.reason
    assert unsupported.instead


@pytest.mark.parametrize("unsupported", UNSUPPORTED, ids=lambda each: each.feature)
def test_a_reason_is_no_promise(unsupported):
    assert " yet" not in f"{unsupported.reason} {unsupported.instead}"


@pytest.mark.parametrize("route", REFUSED, ids=lambda each: f"{each.method} {each.path}")
def test_a_route_that_is_refused_has_a_reason_and_a_way_out(route):
    reason, _, instead = route.reason.partition("; ")
    assert reason
    assert instead


@pytest.mark.parametrize(("name", "reason"), sorted(FIELDS))
def test_a_field_that_is_refused_has_a_reason_and_a_way_out(name, reason):
    assert all(reason.partition("; ")), name
