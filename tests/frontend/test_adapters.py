"""Which models a tenant may name: its zone lists the adapters, and no others exist for it."""

from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route as Endpoint

from tenantzone_contract.zone_config.config import CONFIG_KEY
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.routes import ROUTES, Access
from tests.frontend.harness import PROMPT, call, error_of, settings
from tests.runtime.folders import config, project, zone

SEALED = [route.path for route in ROUTES if route.access is Access.SEALED]
WITH_MODEL = [*SEALED, "/tokenize", "/detokenize", "/v1/messages/count_tokens"]
"""Routes whose body names a model."""
SERVED = ("base", "alias")
LOADED = ("sql", "poetry")


async def answer(request):
    return JSONResponse({"model": (await request.json()).get("model")})


async def models(request):
    names = [{"id": name, "parent": None} for name in SERVED] + [{"id": name, "parent": "base"} for name in LOADED]
    return JSONResponse({"object": "list", "data": names})


@pytest.fixture
def asked(folder):
    """Sends a request as acme, whose zone lists these adapters; burst's lists none, and stray has no zone."""

    def ask(body=None, path="/v1/completions", *, method="POST", key="acme-key", adapters=("sql",)):
        terms = {} if adapters is None else {"adapters": adapters}
        project(folder / "config", {CONFIG_KEY: dump_config(config(2, zone("acme", **terms), zone("burst")))})
        app = Starlette(
            routes=[Endpoint("/v1/models", models), *(Endpoint(each, answer, methods=["POST"]) for each in WITH_MODEL)],
            middleware=[Middleware(TenantMiddleware, settings=settings(folder))],
        )
        names = [SimpleNamespace(name=name) for name in SERVED]
        app.state.openai_serving_models = SimpleNamespace(base_model_paths=names)
        return call(app, method, path, body={**PROMPT, **(body or {})} if method == "POST" else b"", key=key)

    return ask


@pytest.mark.parametrize("path", WITH_MODEL)
@pytest.mark.shows("LoRA")
def test_another_tenants_adapter_does_not_exist_for_a_tenant_whose_zone_lists_others(asked, path):
    refused, unknown = asked({"model": "poetry"}, path), asked({"model": "nobodys"}, path)
    assert refused.status_code == unknown.status_code == 404
    assert error_of(refused)["param"] == "model"
    assert refused.text.replace("poetry", "nobodys") == unknown.text, "the answer hides whether it exists"


@pytest.mark.parametrize("path", WITH_MODEL)
@pytest.mark.parametrize("model", ["sql", "base", "alias", "", None])
def test_the_base_model_and_what_the_zone_lists_may_be_named(asked, path, model):
    assert asked({"model": model}, path).json() == {"model": model}


def test_a_request_may_leave_out_the_model(asked):
    assert asked().json() == {"model": None}


@pytest.mark.parametrize(("key", "adapters"), [("burst-key", ("sql",)), ("acme-key", None)])
def test_a_zone_that_lists_no_adapters_may_name_any(asked, key, adapters):
    assert asked({"model": "poetry"}, key=key, adapters=adapters).json() == {"model": "poetry"}


def test_an_empty_list_leaves_the_base_model(asked):
    assert asked({"model": "sql"}, adapters=()).status_code == 404
    assert asked({"model": "base"}, adapters=()).json() == {"model": "base"}


@pytest.mark.parametrize("model", ["SQL", "sql ", "poetry\u0000", "sql,poetry"])
def test_a_name_is_taken_letter_by_letter(asked, model):
    assert asked({"model": model}).status_code == 404


@pytest.mark.parametrize(
    ("key", "adapters", "listed"),
    [
        ("acme-key", ("sql",), [*SERVED, "sql"]),
        ("acme-key", (), [*SERVED]),
        ("acme-key", ("sql", "not loaded"), [*SERVED, "sql"]),
        ("acme-key", None, [*SERVED, *LOADED]),
        ("burst-key", ("sql",), [*SERVED, *LOADED]),
    ],
)
def test_a_tenant_sees_the_models_that_it_may_use(asked, key, adapters, listed):
    response = asked(path="/v1/models", method="GET", key=key, adapters=adapters)
    assert response.json()["object"] == "list"
    assert [each["id"] for each in response.json()["data"]] == listed
    assert int(response.headers["content-length"]) == len(response.content)


def test_a_name_that_may_not_be_named_is_counted(asked):
    def refused():
        return REGISTRY.get_sample_value("tenantzone_door_refused_requests_total", {"reason": "model"})

    before = refused()
    asked({"model": "poetry"})
    assert refused() == before + 1
