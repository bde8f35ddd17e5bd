"""Which requests pass the frontend, and as which tenant's."""

import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import httpx
import pytest

from tenantzone_contract.keys.salt import tenant_salt
from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_runtime.frontend import active_config
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.routes import MACHINERY, ROUTES, Access
from tenantzone_runtime.settings import Settings
from tests.frontend.harness import (
    PROMPT,
    SALT_KEY,
    SEAL_KEY,
    body_seen,
    call,
    echo,
    error_of,
    eventually,
    frontend,
    give_keys,
    give_salt_key,
    give_zones,
    serving,
    settings,
    tenant_seen,
)
from tests.runtime.folders import project, zone


class TestBinding:
    def test_a_request_is_sealed_for_the_tenant_of_its_key(self, folder):
        response = call(frontend(folder), body=PROMPT, key="acme-key")
        assert tenant_seen(response) == "acme"
        assert body_seen(response)["cache_salt"] == tenant_salt(SALT_KEY, "acme", "")
        assert body_seen(response)["prompt"] == "hello"

    @pytest.mark.parametrize("header", ["x-api-key", "api-key", "X-API-KEY"])
    def test_other_headers_that_clients_use_are_accepted(self, folder, header):
        response = call(frontend(folder), path="/v1/messages", body=PROMPT, headers={header: "burst-key"})
        assert tenant_seen(response) == "burst"

    @pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
    def test_the_scheme_may_be_written_in_any_case(self, folder, scheme):
        assert (
            tenant_seen(call(frontend(folder), body=PROMPT, headers={"authorization": f"{scheme} acme-key"})) == "acme"
        )

    def test_nothing_in_the_body_changes_the_tenant(self, folder):
        stolen = body_seen(call(frontend(folder), body=PROMPT, key="burst-key"))
        response = call(frontend(folder), body=stolen | {"tenant": "burst", "zone": "burst"}, key="acme-key")
        assert tenant_seen(response) == "acme"
        assert body_seen(response)["cache_salt"] == tenant_salt(SALT_KEY, "acme", stolen["cache_salt"])

    def test_a_new_salt_key_is_in_force_without_a_restart(self, folder):
        app = frontend(folder)
        new = b"new".ljust(32)
        give_salt_key(folder, new)
        salt = tenant_salt(new, "acme")
        eventually(lambda: body_seen(call(app, body=PROMPT, key="acme-key"))["cache_salt"] == salt)

    def test_without_a_salt_key_tenants_are_apart_all_the_same(self, folder):
        project(folder / "salt", {})
        app = frontend(folder)
        salts = {body_seen(call(app, body=PROMPT, key=f"{tenant}-key"))["cache_salt"] for tenant in ("acme", "burst")}
        assert len(salts) == 2
        assert tenant_seen(call(app, body=PROMPT, key="acme-key")) == "acme"

    def test_the_length_is_that_of_the_new_body(self, folder):
        response = call(frontend(folder), body=PROMPT, key="acme-key", headers={"Content-Length": "19", "X-Trace": "t"})
        seen = response.json()
        assert int(seen["headers"]["content-length"]) == len(seen["body"])
        assert seen["headers"]["X-Trace"] == "t"

    @pytest.mark.parametrize("path", [route.path for route in ROUTES if route.access is Access.SEALED])
    @pytest.mark.parametrize("field", MACHINERY)
    def test_no_route_takes_fields_for_the_engines_machinery(self, folder, path, field):
        reported = {field: {"remote_host": "10.0.0.1", "remote_port": 22}}
        error = error_of(call(frontend(folder), path=path, body=PROMPT | reported, key="acme-key"))
        assert (error["code"], error["param"]) == (400, field)

    @pytest.mark.parametrize(("field", "value"), [("previous_response_id", "resp_1"), ("background", True)])
    def test_stored_responses_are_refused(self, folder, field, value):
        error = error_of(call(frontend(folder), path="/v1/responses", body={field: value}, key="acme-key"))
        assert (error["code"], error["param"]) == (400, field)

    @pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"1", b"\xff"])
    def test_a_body_that_is_no_json_object_never_passes(self, folder, body):
        assert error_of(call(frontend(folder), body=body, key="acme-key"))["code"] == 400

    @pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
    def test_a_compressed_body_is_refused(self, folder, encoding):
        response = call(frontend(folder), body=PROMPT, key="acme-key", headers={"Content-Encoding": encoding})
        assert error_of(response)["code"] == 415


class TestKeys:
    @pytest.mark.parametrize(
        "headers",
        [
            pytest.param({}, id="none"),
            pytest.param({"authorization": "Bearer wrong"}, id="a wrong one"),
            pytest.param({"authorization": "Bearer"}, id="an empty one"),
            pytest.param({"authorization": "Basic YWNtZS1rZXk="}, id="another scheme"),
            pytest.param({"authorization": "acme-key"}, id="no scheme"),
            pytest.param({"authorization": "Bearer acme-key", "x-api-key": "burst-key"}, id="two tenants'"),
            pytest.param({"authorization": "Bearer \xe9"}, id="no ASCII"),
        ],
    )
    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/models"])
    def test_without_one_good_key_it_is_401(self, folder, headers, path):
        method = "GET" if path == "/v1/models" else "POST"
        response = call(frontend(folder), method, path, body=PROMPT, headers=headers)
        assert error_of(response)["type"] == "AuthenticationError"
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")

    def test_the_same_key_twice_is_one_key(self, folder):
        headers = {"authorization": "Bearer acme-key", "x-api-key": "acme-key"}
        assert tenant_seen(call(frontend(folder), body=PROMPT, headers=headers)) == "acme"

    def test_a_tenant_without_a_zone_is_403(self, folder):
        error = error_of(call(frontend(folder), body=PROMPT, key="stray-key"))
        assert (error["code"], error["type"]) == (403, "PermissionDeniedError")
        assert "Tenant 'stray' has no zone" in error["message"]

    def test_a_config_without_zones_admits_no_client(self, folder):
        give_zones(folder, generation=2)
        assert call(frontend(folder), body=PROMPT, key="acme-key").status_code == 403

    def test_a_config_without_keys_admits_no_client(self, tmp_path):
        give_zones(tmp_path, "acme")
        assert call(frontend(tmp_path), body=PROMPT, key="acme-key").status_code == 401

    def test_no_answer_repeats_the_key(self, folder):
        assert "wrong-key" not in call(frontend(folder), body=PROMPT, key="wrong-key").text


class TestUnknownTenants:
    @pytest.fixture(autouse=True)
    def _registers(self, folder):
        give_zones(folder, "acme", unknown="AutoRegister", generation=2)

    def test_a_tenant_without_a_zone_is_sealed_as_any_other(self, folder):
        response = call(frontend(folder), body=PROMPT | {"cache_salt": "mine"}, key="stray-key")
        assert tenant_seen(response) == "stray"
        assert body_seen(response)["cache_salt"] == tenant_salt(SALT_KEY, "stray", "mine")

    def test_routes_that_are_not_sealed_are_open_to_it_too(self, folder):
        assert call(frontend(folder), "GET", "/v1/models", key="stray-key").status_code == 200

    def test_a_pool_without_any_zone_lets_each_tenant_in(self, folder):
        give_zones(folder, unknown="AutoRegister", generation=3)
        made = frontend(folder)
        assert [tenant_seen(call(made, body=PROMPT, key=f"{name}-key")) for name in ("acme", "stray")] == [
            "acme",
            "stray",
        ]

    def test_it_takes_a_valid_key_all_the_same(self, folder):
        made = frontend(folder)
        assert call(made, body=PROMPT).status_code == 401
        assert call(made, body=PROMPT, key="wrong-key").status_code == 401

    def test_the_seal_of_one_unknown_tenant_does_not_serve_another(self, folder):
        made = frontend(folder)
        stolen = body_seen(call(made, body=PROMPT, key="stray-key"))
        assert tenant_seen(call(made, body=stolen, key="burst-key")) == "burst"


class TestWithoutConfig:
    def test_with_no_keys_either_everything_passes_untouched(self, tmp_path):
        body = b'{"vllm_xargs": {"tenantzone_seal": "x"}, "a":1, "a":2}'
        for path in ("/v1/completions", "/metrics", "/unknown"):
            assert call(frontend(tmp_path), path=path, body=body).json()["body"].encode() == body

    def test_with_keys_one_is_required_and_the_request_is_not_sealed(self, tmp_path):
        give_keys(tmp_path, acme="acme-key")
        made = frontend(tmp_path)
        assert call(made, body=PROMPT).status_code == 401
        sent = PROMPT | {"cache_salt": "mine", "vllm_xargs": {"tenantzone_seal": "forged", "top": 1}}
        assert body_seen(call(made, body=sent, key="acme-key")) == PROMPT | {
            "cache_salt": "mine",
            "vllm_xargs": {"top": 1},
        }

    def test_a_first_config_that_is_broken_is_none(self, tmp_path, caplog):
        give_keys(tmp_path, acme="acme-key")
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "config.json").write_text("{")
        assert "vllm_xargs" not in body_seen(call(frontend(tmp_path), body=PROMPT, key="acme-key"))
        assert "not valid JSON" in caplog.text


class TestHotReload:
    def test_keys_zones_and_their_loss_take_effect_without_a_restart(self, tmp_path):
        made = frontend(tmp_path)

        def status(key: str) -> int:
            return call(made, body=PROMPT, key=key).status_code

        assert status("any") == 200
        give_keys(tmp_path, acme="first-key")
        eventually(lambda: status("any") == 401)
        give_zones(tmp_path, "acme")
        eventually(lambda: "vllm_xargs" in body_seen(call(made, body=PROMPT, key="first-key")))
        give_keys(tmp_path, acme="second-key")
        eventually(lambda: status("first-key") == 401)
        assert status("second-key") == 200
        give_zones(tmp_path, "burst", generation=2)
        eventually(lambda: status("second-key") == 403)

    def test_the_pool_may_begin_and_stop_to_register_unknown_tenants(self, folder):
        made = frontend(folder)

        def status(key: str) -> int:
            return call(made, body=PROMPT, key=key).status_code

        assert status("stray-key") == 403
        give_zones(folder, "acme", unknown="AutoRegister", generation=2)
        eventually(lambda: status("stray-key") == 200)
        give_zones(folder, "acme", generation=3)
        eventually(lambda: status("stray-key") == 403)
        assert status("acme-key") == 200

    def test_a_broken_config_changes_nothing(self, folder, caplog):
        made = frontend(folder)
        project(folder / "config", {"config.json": "{"})

        def complained() -> bool:
            assert tenant_seen(call(made, body=PROMPT, key="acme-key")) == "acme"
            return "keeps its last good config: not valid JSON" in caplog.text

        eventually(complained)


def test_a_client_that_leaves_in_the_middle_of_its_body_gets_nothing_and_disturbs_no_other(folder):
    incoming = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    headers = [(b"authorization", b"Bearer acme-key")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}

    async def receive():
        return incoming.pop(0)

    async def send(message):
        raise AssertionError(f"no client is there to get {message}")

    asyncio.run(frontend(folder)(scope, receive, send))


def test_a_probe_is_answered_while_keys_are_looked_at(folder, monkeypatch):
    """That takes long if their folder is on a slow disk, and a moment of each request if there are many."""
    app, looking, may_end = frontend(folder), threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        assert may_end.wait(30)

    monkeypatch.setattr(app._active_config, "look", look)
    monkeypatch.setattr(app._active_config, "_looked_at", float("-inf"))
    with serving(app) as url, ThreadPoolExecutor(1) as other:
        headers = {"authorization": "Bearer acme-key"}
        keyed = other.submit(httpx.post, f"{url}/v1/completions", json=PROMPT, headers=headers, timeout=60)
        try:
            assert looking.wait(30)
            for ask in (httpx.get, httpx.head):
                assert ask(f"{url}/health", timeout=10).status_code == 200
            assert not keyed.done()
        finally:
            may_end.set()
        assert tenant_seen(keyed.result()) == "acme"


def test_a_request_waits_for_a_look_only_where_the_last_one_is_too_long_ago(folder, monkeypatch):
    app, looking, may_end = frontend(folder), threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        assert may_end.wait(30)

    monkeypatch.setattr(app._active_config, "look", look)
    with serving(app) as url, ThreadPoolExecutor(1) as other:
        ask = partial(
            httpx.post, f"{url}/v1/completions", json=PROMPT, headers={"authorization": "Bearer acme-key"}, timeout=60
        )
        try:
            monkeypatch.setattr(active_config, "MAX_AGE_SECONDS", math.inf)
            app._active_config._looked_at = 0.0
            assert tenant_seen(ask()) == "acme"
            assert looking.wait(30)
            assert tenant_seen(ask()) == "acme", "while it is looked at"
            monkeypatch.setattr(active_config, "MAX_AGE_SECONDS", 0.2)
            waiting = other.submit(ask)
            assert httpx.get(f"{url}/health", timeout=10).status_code == 200
            assert not waiting.done()
        finally:
            may_end.set()
        assert tenant_seen(waiting.result()) == "acme"


def test_lifespan_passes(folder):
    passed = []

    async def app(scope, receive, send):
        passed.append(scope["type"])

    asyncio.run(frontend(folder, app)({"type": "lifespan"}, None, None))
    assert passed == ["lifespan"]


def test_vllm_makes_it_without_arguments(folder, monkeypatch):
    monkeypatch.setenv("TENANTZONE_SEAL_KEY", SEAL_KEY.hex())
    monkeypatch.setenv("TENANTZONE_STATE_DIR", str(folder / "config"))
    monkeypatch.setenv("TENANTZONE_KEYS_DIR", str(folder / "keys"))
    monkeypatch.setenv("TENANTZONE_SALT_DIR", str(folder / "salt"))
    assert tenant_seen(call(TenantMiddleware(echo), body=PROMPT, key="acme-key")) == "acme"


def test_without_a_seal_key_it_does_not_start_and_says_what_to_do(folder):
    known = settings(folder)
    keyless = Settings(**{name: getattr(known, name) for name in known.__slots__} | {"seal_key": b""})
    with pytest.raises(ValueError, match=r"TENANTZONE_SEAL_KEY is empty.*VLLM_PLUGINS"):
        TenantMiddleware(echo, keyless)


def test_without_the_engines_folder_it_does_not_start(folder):
    with pytest.raises(ValueError, match="TENANTZONE_STATE_DIR is empty"):
        TenantMiddleware(echo, replace(settings(folder), state_dir=None))


def test_a_config_that_the_engine_does_not_enforce_is_none(folder, tmp_path):
    """The engine judges what the operator wrote; the frontend follows the engine."""
    config = make_config(9, PoolConfig(namespace="models", name="main"), (zone("burst"),))
    project(settings(folder).config_dir, {"config.json": dump_config(config)})
    assert tenant_seen(call(frontend(folder), body=PROMPT, key="acme-key")) == "acme"
