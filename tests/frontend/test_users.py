"""Which user of a tenant a request belongs to: the one in its header, and nothing else counts."""

import json

import pytest

from tenantzone_contract.zone_config.config import CONFIG_KEY
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_runtime.seal import unseal
from tests.frontend.harness import PROMPT, SEAL_KEY, body_seen, call, error_of, frontend
from tests.runtime.folders import config, project, zone


@pytest.fixture
def user_in(folder):
    """Sends a request with these headers. Returns the user reported to the engine."""

    def ask(headers, *, key="acme-key", fairness={"header": "x-user-id"}, body=None):  # noqa: B006
        zones = zone("acme", fairness=fairness), zone("burst", fairness={"header": "x-user-id"})
        project(folder / "config", {CONFIG_KEY: dump_config(config(2, *zones))})
        response = call(frontend(folder), body={**PROMPT, **(body or {})}, key=key, headers=headers)
        if response.status_code != 200:
            return response
        seen = body_seen(response)
        ask.headers_behind = {name.lower(): value for name, value in response.json()["headers"].items()}
        return unseal(SEAL_KEY, seen["vllm_xargs"]["tenantzone_seal"], seen["cache_salt"]).user

    return ask


def test_the_same_name_is_the_same_user_and_another_name_another(user_in):
    ann = user_in({"X-User-Id": "ann"})
    assert ann == user_in({"x-user-id": " ann "})
    assert ann != user_in({"x-user-id": "bob"})
    assert ann
    assert "ann" not in json.dumps(ann)


def test_however_the_zone_spells_its_header_it_is_the_same_one(user_in):
    ann = user_in({"x-user-id": "ann"}, fairness={"header": "X-User-Id"})
    assert ann == user_in({"X-USER-ID": "ann"})
    assert ann
    assert user_in({"x-user-id": "a\tb"}, fairness={"header": "X-User-Id"}).status_code == 400


def test_users_of_two_tenants_are_never_the_same(user_in):
    assert user_in({"x-user-id": "ann"}) != user_in({"x-user-id": "ann"}, key="burst-key")


@pytest.mark.parametrize("headers", [{}, {"x-user-id": ""}, {"x-other": "ann"}])
def test_a_request_that_names_no_user_has_none(user_in, headers):
    assert user_in(headers) == ""


def test_where_the_zone_asks_for_no_user_the_header_is_nothing(user_in):
    assert user_in({"x-user-id": "ann"}, fairness={}) == ""


def test_a_user_in_the_body_is_nothing(user_in):
    assert user_in({}, body={"user": "ann"}) == ""


@pytest.mark.parametrize("name", ["a" * 257, "a\tb", "\xe9", "a\x7f"])
def test_what_is_no_name_is_refused(user_in, name):
    response = user_in({"x-user-id": name})
    assert response.status_code == 400
    assert error_of(response)["param"] == "x-user-id"


def test_two_names_are_refused(user_in):
    response = user_in({"x-user-id": "ann\nbob"})
    assert response.status_code == 400
    assert error_of(response)["param"] == "x-user-id"


def test_the_name_goes_no_further_than_the_frontend(user_in):
    assert user_in({"X-User-Id": "ann", "x-other": "kept"})
    assert "x-user-id" not in user_in.headers_behind
    assert user_in.headers_behind["x-other"] == "kept"
    user_in({"X-User-Id": "ann"}, fairness={})
    assert user_in.headers_behind["x-user-id"] == "ann"
