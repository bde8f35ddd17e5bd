"""Each refusal is counted under its own reason."""

import asyncio
from dataclasses import replace
from typing import get_args

import pytest
from prometheus_client import REGISTRY

from tenantzone_contract.zone_config.config import CONFIG_KEY
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_runtime.frontend.body import limits
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.responses.engine_refusal import refuse, refuse_answer
from tenantzone_runtime.frontend.responses.refusals import Reason, families
from tenantzone_runtime.settings import Bounds
from tests.frontend.harness import PROMPT, call, echo, give_zones, settings
from tests.frontend.identities import REFUSED as REFUSED_IDENTITIES
from tests.frontend.identities import SECRET, give_files, key_set
from tests.frontend.test_full_queues import full_for
from tests.runtime.folders import config, project, zone

REFUSED = [
    ("no_key", {}),
    ("several_keys", {"key": "acme-key", "headers": {"api-key": "burst-key"}}),
    ("unknown_key", {"key": "guessed"}),
    ("no_zone", {"key": "stray-key"}),
    ("unknown_route", {"path": "/v1/secrets"}),
    ("wrong_method", {"method": "DELETE"}),
    ("closed_route", {"path": "/v1/rerank"}),
    ("malformed_body", {"key": "acme-key", "body": b"{"}),
    ("compressed_body", {"key": "acme-key", "headers": {"content-encoding": "gzip"}}),
    ("duplicate_header", {"key": "acme-key", "headers": {"content-length": "9", "transfer-encoding": "chunked"}}),
    ("large_body", {"key": "acme-key", "headers": {"content-length": str(2**40)}}),
    ("complex_body", {"key": "acme-key", "body": b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"}),
    ("complex_grammar", {"key": "acme-key", "body": {**PROMPT, "guided_regex": "a{5000}"}}),
    ("many_prompts", {"key": "acme-key", "body": {"prompt": ["hello"] * 1000}}),
    ("unsupported_field", {"key": "acme-key", "body": {**PROMPT, "kv_hints": {"a": 1}}}),
]

BEYOND_TERMS = [("request_limits", {"max_tokens": 8}), ("request_priority", {"priority": 1})]

IN_CONNECTIONS = {"large_head", "slow_head", "connections", "pipelined", "upgrade"}
"""The reasons tested by ``test_connections.py``."""


def refusals() -> dict[str, float]:
    (family,) = families()
    return {reason: REGISTRY.get_sample_value(family.name, {"reason": reason}) for reason in get_args(Reason)}


@pytest.mark.parametrize(("reason", "request_"), REFUSED, ids=[reason for reason, _ in REFUSED])
def test_a_refusal_is_counted(folder, reason, request_):
    before = refusals()
    assert call(TenantMiddleware(echo, settings(folder)), **({"body": PROMPT} | request_)).status_code >= 400
    assert refusals() == {**before, reason: before[reason] + 1}


@pytest.mark.parametrize(("reason", "identity", "request_"), REFUSED_IDENTITIES)
def test_a_refusal_of_an_unknown_caller_is_counted(folder, reason, identity, request_):
    give_zones(folder, "acme", generation=2, identity=identity)
    give_files(folder, secret=SECRET, **{"jwks.json": key_set()})
    before = refusals()
    assert call(TenantMiddleware(echo, settings(folder)), **({"body": PROMPT} | request_)).status_code >= 400
    assert refusals() == {**before, reason: before[reason] + 1}


@pytest.mark.parametrize(("reason", "fields"), BEYOND_TERMS)
def test_a_refusal_of_what_is_beyond_a_zones_terms_is_counted(folder, reason, fields):
    terms = {"requestLimits": {"maxTokens": 7}, "requestPriority": {"min": 0, "max": 0}}
    project(folder / "config", {CONFIG_KEY: dump_config(config(2, zone("acme", **terms)))})
    before = refusals()
    answer = call(TenantMiddleware(echo, settings(folder)), body={**PROMPT, **fields}, key="acme-key")
    assert answer.status_code == 400
    assert refusals() == {**before, reason: before[reason] + 1}


def test_a_refusal_of_what_names_no_user_is_counted(folder):
    fair = zone("acme", fairness={"header": "x-user-id"})
    project(folder / "config", {CONFIG_KEY: dump_config(config(2, fair))})
    before = refusals()
    app = TenantMiddleware(echo, settings(folder))
    assert call(app, body=PROMPT, key="acme-key", headers={"x-user-id": "\xe9"}).status_code == 400
    assert refusals() == {**before, "user": before["user"] + 1}


async def test_a_web_socket_is_counted(folder):
    async def send(message):
        pass

    before = refusals()
    await TenantMiddleware(echo, settings(folder))({"type": "websocket"}, None, send)
    assert refusals() == {**before, "websocket": before["websocket"] + 1}


@pytest.mark.parametrize(
    ("reason", "bounds"),
    [
        ("tenant_requests", Bounds(max_tenant_requests=0)),
        ("tenant_bodies", Bounds(max_tenant_body_bytes=0)),
        ("all_bodies", Bounds(max_held_body_bytes=0)),
    ],
)
def test_what_is_too_much_at_once_is_counted(folder, reason, bounds):
    before = refusals()
    bounded = TenantMiddleware(echo, replace(settings(folder), bounds=bounds))
    assert call(bounded, body=PROMPT, key="acme-key").status_code in (429, 503)
    assert refusals() == {**before, reason: before[reason] + 1}


async def test_a_slow_body_is_counted(folder, monkeypatch):
    monkeypatch.setattr(limits.read_body, "__kwdefaults__", {"seconds": 0.01})
    never = asyncio.Event()

    async def send(message):
        pass

    before = refusals()
    headers = [(b"authorization", b"Bearer acme-key")]
    scope = {"type": "http", "method": "POST", "path": "/tokenize", "headers": headers}
    await TenantMiddleware(echo, settings(folder))(scope, never.wait, send)
    assert refusals() == {**before, "slow_body": before["slow_body"] + 1}


def test_a_refusal_of_the_engine_is_counted(folder):
    async def app(scope, receive, send):
        asked = asyncio.ensure_future(refuse(403, "no"))
        while (await receive())["type"] != "http.disconnect":
            pass
        asked.cancel()

    before = refusals()
    assert call(TenantMiddleware(app, settings(folder)), body=PROMPT, key="acme-key").status_code == 403
    assert refusals() == {**before, "engine": before["engine"] + 1}


def test_a_refusal_that_the_engine_has_just_made_is_counted_alone(folder):
    app = TenantMiddleware(full_for(60.0), settings(folder))
    before = refusals()
    assert [call(app, body=PROMPT, key="acme-key").status_code for _ in range(3)] == [429] * 3
    assert refusals() == {**before, "engine": before["engine"] + 1, "full_queue": before["full_queue"] + 2}


def test_an_answer_that_can_t_be_parsed_in_time_is_counted(folder):
    async def app(scope, receive, send):
        assert refuse_answer(Refusal(422, "parsing_budget", "too long"))
        raise RuntimeError("what ends it in vLLM")

    before = refusals()
    assert call(TenantMiddleware(app, settings(folder)), body=PROMPT, key="acme-key").status_code == 422
    assert refusals() == {**before, "parsing_budget": before["parsing_budget"] + 1}


def test_what_passes_is_not_counted(folder):
    before = refusals()
    assert call(TenantMiddleware(echo, settings(folder)), body=PROMPT, key="acme-key").status_code == 200
    assert refusals() == before


def test_there_is_a_test_for_each_reason():
    elsewhere = {"websocket", "engine", "slow_body", "tenant_requests", "tenant_bodies", "all_bodies", "full_queue"}
    elsewhere |= {*IN_CONNECTIONS, "user", "model", "failed", "large_media", "parsing_budget"}
    by_identity = {reason for reason, *_ in REFUSED_IDENTITIES}
    by_terms = {reason for reason, _ in BEYOND_TERMS}
    assert {reason for reason, _ in REFUSED} | by_identity | by_terms | elsewhere == set(get_args(Reason))
