"""How the frontend handles each route, and similar paths."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette._utils import get_route_path
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, Router

from tenantzone_runtime.frontend.routes import ROUTES, WEBSOCKET, Access, routed_path
from tests.frontend.harness import PROMPT, body_seen, call, echo, error_of, frontend, tenant_seen


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.method != WEBSOCKET],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_each_route_is_treated_as_declared(folder, route):
    path = route.path.replace("{response_id}", "resp_1").replace("{adapter_name}", "a")
    with_key = call(frontend(folder), route.method, path, body=PROMPT, key="acme-key")
    without = call(frontend(folder), route.method, path, body=PROMPT)
    match route.access:
        case Access.OPEN:
            assert (without.status_code, with_key.status_code) == (200, 200)
        case Access.KEYED:
            assert (without.status_code, with_key.status_code) == (401, 200)
            assert body_seen(with_key) == PROMPT
        case Access.SEALED:
            assert without.status_code == 401
            assert tenant_seen(with_key) == "acme"
        case Access.REFUSED:
            error = error_of(with_key)
            assert error["code"] == without.status_code == 403
            assert error["message"] == f"{route.method} {path} is closed to tenants: {route.reason}"


def test_an_unknown_route_is_404_and_named(folder):
    error = error_of(call(frontend(folder), path="/v1/new", body=PROMPT, key="acme-key"))
    assert error["code"] == 404
    assert "/v1/new" in error["message"]


def test_a_longer_path_is_another_route(folder):
    assert call(frontend(folder), "GET", "/v1/responses/resp_1/more", key="acme-key").status_code == 404


def test_another_method_is_405(folder):
    response = call(frontend(folder), "GET", "/v1/completions", key="acme-key")
    assert error_of(response)["code"] == 405
    assert response.headers["allow"] == "POST"


def test_head_counts_as_get(folder):
    assert call(frontend(folder), "HEAD", "/v1/models", key="acme-key").status_code == 200
    assert call(frontend(folder), "HEAD", "/v1/models").status_code == 401
    assert call(frontend(folder), "HEAD", "/health").status_code == 200
    assert call(frontend(folder), "HEAD", "/metrics", key="acme-key").status_code == 403


def test_a_browser_may_ask_first_without_a_key(folder):
    assert call(frontend(folder), "OPTIONS", "/v1/completions").status_code == 200
    assert call(frontend(folder), "OPTIONS", "/reset_prefix_cache").status_code == 403
    assert call(frontend(folder), "OPTIONS", "/unknown").status_code == 404


def test_a_route_can_be_opened(folder):
    assert call(frontend(folder, echo, "/metrics"), "GET", "/metrics").status_code == 200
    assert call(frontend(folder, echo, "/metrics"), "GET", "/load").status_code == 403


@pytest.mark.parametrize("path", ["/v1/completions", "/unknown", "/v1/responses/{response_id}", "/sleep"])
def test_what_would_let_requests_around_the_zones_can_not_be_opened(folder, path):
    with pytest.raises(ValueError, match=f"TENANTZONE_OPEN_ROUTES: '{path}' can't be opened".replace("{", r"\{")):
        frontend(folder, echo, path)


def test_the_prefix_that_the_application_is_mounted_under_is_left_out(folder):
    response = call(frontend(folder), path="/api/v1/completions", root_path="/api", body=PROMPT, key="acme-key")
    assert tenant_seen(response) == "acme"
    assert call(frontend(folder), path="/api/metrics", root_path="/api", key="acme-key").status_code == 405


PARTS = st.sampled_from(
    ["/", "//", "/./", "/../", "/%2e%2e/", ";", "?", "#", "%00", "\\", " ", ".", "%2F", "ſ", "A", "/api"]
)


@st.composite
def misspelt(draw: st.DrawFn) -> str:
    """The path of a route with an inserted or replaced letter, or in capitals."""
    path = draw(st.sampled_from([route.path for route in ROUTES]))
    at, gap = draw(st.integers(0, len(path))), draw(st.integers(0, 1))
    path = path[:at] + draw(PARTS) + path[at + gap :]
    return path.upper() if draw(st.booleans()) else path


async def show_body(request: Request) -> JSONResponse:
    return JSONResponse({"body": (await request.body()).decode()})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(misspelt(), st.sampled_from(["", "/api", "/v1", "/"]))
def test_no_spelling_reaches_a_sealed_route_without_the_seal(folder, path, root_path):
    """Behind the frontend is vLLM's router: what it takes for a sealed route must carry the tenant's seal."""
    sealed = [Route(route.path, show_body, methods=["POST"]) for route in ROUTES if route.access is Access.SEALED]
    response = call(frontend(folder, Router(sealed)), path=path, root_path=root_path, body=PROMPT, key="acme-key")
    if response.status_code == 200:
        assert tenant_seen(response) == "acme"


@given(st.text("/abv1."), st.text("/abv1."))
def test_the_frontend_routes_on_the_path_that_the_application_routes_on(path, root_path):
    assert routed_path(path, root_path) == get_route_path({"path": path, "root_path": root_path})
