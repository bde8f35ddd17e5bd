"""Each refusal is counted under its own reason."""

from typing import get_args

import pytest
from prometheus_client import REGISTRY

from tenantzone_runtime.door import limits
from tenantzone_runtime.door.middleware import TenantMiddleware
from tenantzone_runtime.door.refusals import Reason, families
from tests.door.harness import PROMPT, call, echo, give_zones, settings
from tests.door.identities import REFUSED as REFUSED_IDENTITIES
from tests.door.identities import SECRET, give_files, key_set

REFUSED = [
    ("no_key", {}),
    ("several_keys", {"key": "acme-key", "headers": {"api-key": "burst-key"}}),
    ("unknown_key", {"key": "guessed"}),
    ("no_zone", {"key": "stray-key"}),
    ("unknown_route", {"path": "/v1/secrets"}),
    ("wrong_method", {"method": "DELETE"}),
    ("closed_route", {"path": "/v1/embeddings"}),
    ("malformed_body", {"key": "acme-key", "body": b"{"}),
    ("compressed_body", {"key": "acme-key", "headers": {"content-encoding": "gzip"}}),
    ("large_body", {"key": "acme-key", "headers": {"content-length": str(limits.MAX_BODY_BYTES + 1)}}),
    ("unsupported_field", {"key": "acme-key", "body": {**PROMPT, "use_beam_search": True}}),
]


def refusals() -> dict[str, float]:
    (family,) = families()
    return {reason: REGISTRY.get_sample_value(family.name, {"reason": reason}) for reason in get_args(Reason)}


@pytest.mark.parametrize(("reason", "request_"), REFUSED, ids=[reason for reason, _ in REFUSED])
def test_a_refusal_is_counted(folder, reason, request_):
    before = refusals()
    assert call(TenantMiddleware(echo, settings(folder)), **({"body": PROMPT} | request_)).status_code >= 400
    assert refusals() == {**before, reason: before[reason] + 1}


@pytest.mark.parametrize(("reason", "identity", "request_"), REFUSED_IDENTITIES)
def test_a_refusal_of_somebody_who_is_not_known_is_counted(folder, reason, identity, request_):
    give_zones(folder, "acme", generation=2, identity=identity)
    give_files(folder, secret=SECRET, **{"jwks.json": key_set()})
    before = refusals()
    assert call(TenantMiddleware(echo, settings(folder)), **({"body": PROMPT} | request_)).status_code >= 400
    assert refusals() == {**before, reason: before[reason] + 1}


async def test_a_web_socket_is_counted(folder):
    async def send(message):
        pass

    before = refusals()
    await TenantMiddleware(echo, settings(folder))({"type": "websocket"}, None, send)
    assert refusals() == {**before, "websocket": before["websocket"] + 1}


def test_what_passes_is_not_counted(folder):
    before = refusals()
    assert call(TenantMiddleware(echo, settings(folder)), body=PROMPT, key="acme-key").status_code == 200
    assert refusals() == before


def test_there_is_a_test_for_each_reason():
    by_identity = {reason for reason, *_ in REFUSED_IDENTITIES}
    assert {reason for reason, _ in REFUSED} | by_identity | {"websocket"} == set(get_args(Reason))
