"""Attacks by salts on the real engine: stolen, forged, guessed, replayed, and spelled to look like another's.

The attacker knows the victim's exact prompt and the salt under which it is cached, and has a key of its own.
"""

import json
import secrets
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tenantzone_contract.keys.salt import new_salt_key, salt_key_id, salt_secret_name, tenant_salt
from tenantzone_contract.zone_config.config import ZoneConfig
from tests.engine.real_engine import API_PORT, RealEngine

pytestmark = pytest.mark.engine

TOKENS = 192
"""Tokens of the victim's prompt: a byte each, six blocks."""
GUESSES = 100


def prompt(subject: str) -> str:
    return f"{subject}: {'what only acme asks ' * TOKENS}"[: TOKENS + 1]


def ask(engine: RealEngine, tenant: str, body: str | Mapping[str, Any], path: str = "completions") -> httpx.Response:
    content = body if isinstance(body, str) else json.dumps(body)
    headers = {"Authorization": f"Bearer key-of-{tenant}", "Content-Type": "application/json"}
    return httpx.post(f"http://{engine.address}:{API_PORT}/v1/{path}", content=content, headers=headers, timeout=60)


def found(engine: RealEngine, tenant: str, asked: str, **fields: Any) -> int:
    """Tokens of a prompt reported to a tenant as cached; 0 if the request is refused."""
    answer = ask(engine, tenant, {"model": "tiny", "prompt": asked, "max_tokens": 1, **fields})
    if answer.status_code == 400:
        return 0
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def attacked(engine: RealEngine) -> RealEngine:
    engine.declare(
        ZoneConfig(name="acme", tenant="acme", generation=1, reserved="40%"),
        ZoneConfig(name="burst", tenant="burst", generation=1),
    )
    return engine


def full_width(text: str) -> str:
    """A text that looks the same, and is the same after Unicode folding (NFKC)."""
    return "".join(chr(ord(each) + 0xFEE0) for each in text)


def forged_salts(stolen: str, own: str) -> dict[str, str]:
    """Salts made from the victim's salt and one's own, by method."""
    half = len(stolen) // 2
    return {
        "the victim's": stolen,
        "its first half": stolen[:half],
        "its second half": stolen[half:],
        "its halves swapped": stolen[half:] + stolen[:half],
        "its namespace under one's own mark": stolen[:half] + own[half:],
        "one's own namespace under its mark": own[:half] + stolen[half:],
        "twice": stolen * 2,
        "without its last digit": stolen[:-1],
        "with a digit more": stolen + "0",
        "another last digit": stolen[:-1] + ("0" if stolen[-1] != "0" else "1"),
        "in capitals": stolen.upper(),
        "behind a space": f" {stolen}",
        "before a line's end": f"{stolen}\n",
        "before NUL": f"{stolen}\x00burst",
        "with nothing to be seen": f"{stolen}\u200b",
        "behind a byte order mark": f"\ufeff{stolen}",
        "with a combining mark": f"{stolen}\u0301",
        "in full width": full_width(stolen),
        "in Cyrillic": stolen.translate(str.maketrans("ace", "\u0430\u0441\u0435")),
        "turned around": f"\u202e{stolen[::-1]}",
        "percent-encoded": "".join(f"%{ord(each):02x}" for each in stolen),
        "in base64's other digits": stolen.replace("0", "O").replace("1", "l"),
        "half a surrogate pair": f"{stolen}\ud800",
        "the longest": stolen + "x" * 960,
        "the victim's name": "acme",
        "the victim's name before NUL": "acme\x00",
        "the Secret's name": salt_secret_name("pool"),
    }


@pytest.fixture(scope="module")
def cached(attacked: RealEngine) -> str:
    """A prompt of the victim that the engine keeps cached."""
    asked = prompt("forged")
    found(attacked, "acme", asked)
    assert found(attacked, "acme", asked) == TOKENS
    return asked


def test_the_attack_finds_what_the_attacker_has_sent_under_that_salt(attacked: RealEngine):
    """Without this, the next tests would pass with an attack that never finds anything."""
    stolen, asked = tenant_salt(attacked.salt_key, "acme"), prompt("my own")
    assert [found(attacked, "burst", asked, cache_salt=stolen) for _ in range(2)] == [0, TOKENS]


def test_no_salt_that_is_made_of_the_victims_opens_its_cache(attacked: RealEngine, cached: str):
    stolen, own = (tenant_salt(attacked.salt_key, tenant) for tenant in ("acme", "burst"))
    forged = forged_salts(stolen, own)
    assert len(set(forged.values())) == len(forged)
    reported = {how: found(attacked, "burst", cached, cache_salt=salt) for how, salt in forged.items()}
    assert not any(reported.values()), reported
    assert found(attacked, "acme", cached) == TOKENS, "the victim has lost nothing by it"


def test_a_salt_that_is_put_elsewhere_opens_nothing(attacked: RealEngine, cached: str):
    stolen = tenant_salt(attacked.salt_key, "acme")
    for place in (
        {"vllm_xargs": {"cache_salt": stolen}},
        {"vllm_xargs": {"tenantzone_salt": stolen, "tenant": "acme"}},
        {"user": stolen, "session_id": stolen, "request_id": stolen, "prompt_cache_key": stolen},
        {"metadata": {"cache_salt": stolen}},
        {"extra_body": {"cache_salt": stolen}},
    ):
        # Each in its own namespace, so that no attempt finds what the previous one has left.
        assert found(attacked, "burst", cached, cache_salt=secrets.token_hex(8), **place) == 0, place
    # A prompt that no request has used: the attacker now has the one above.
    stolen = tenant_salt(attacked.salt_key, "acme", "a client's own")
    body = json.dumps({"model": "tiny", "prompt": cached, "max_tokens": 1})[:-1]
    for twice in (
        f', "cache_salt": "a", "cache_salt": "{stolen}"}}',
        f', "cache_salt": "{stolen}", "cache_salt": "b"}}',
    ):
        answer = ask(attacked, "burst", body + twice)
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, twice
    assert found(attacked, "acme", cached) == TOKENS


@pytest.mark.parametrize("path", ["chat/completions", "chat/completions/batch", "responses", "messages"])
def test_on_no_route_does_a_stolen_salt_open_the_victims_cache(attacked: RealEngine, path: str):
    messages = [{"role": "user", "content": prompt(path)}]
    fields = {
        "responses": {"input": messages, "max_output_tokens": 1},
        "chat/completions/batch": {"messages": [messages], "max_tokens": 1},
    }.get(path, {"messages": messages, "max_tokens": 1})

    def hits(tenant: str, **salt: str) -> int:
        """Tokens counted as found for the tenant's zone by this request."""
        before = attacked.zone(tenant).prefix_hit_tokens
        answer = ask(attacked, tenant, {"model": "tiny", **fields, **salt}, path)
        assert answer.status_code == 200, answer.text
        return attacked.zone(tenant).prefix_hit_tokens - before

    assert hits("acme") == 0
    assert hits("burst", cache_salt=tenant_salt(attacked.salt_key, "acme")) == 0
    assert hits("acme") >= TOKENS
    assert hits("acme", cache_salt=tenant_salt(attacked.salt_key, "acme")) >= TOKENS, "its own, as a gateway stamps it"


def test_guesses_open_nothing(attacked: RealEngine, cached: str):
    guesses = [secrets.token_hex(32) for _ in range(GUESSES)]
    guesses += [f"{number:064x}" for number in range(3)] + [salt_key_id(attacked.salt_key)]
    assert not any(found(attacked, "burst", cached, cache_salt=guess) for guess in guesses)
    assert found(attacked, "acme", cached) == TOKENS


def test_a_salt_of_another_pool_opens_nothing(attacked: RealEngine, cached: str):
    """Even for a tenant of the same name: it opens nothing for another tenant, nor for that tenant itself."""
    elsewhere = tenant_salt(new_salt_key(), "acme")
    assert [found(attacked, tenant, cached, cache_salt=elsewhere) for tenant in ("burst", "acme")] == [0, 0]


def test_after_a_rotation_a_salt_of_before_opens_nothing_for_anybody(attacked: RealEngine):
    asked = prompt("before the rotation")
    before = tenant_salt(attacked.salt_key, "acme")
    assert [found(attacked, "acme", asked) for _ in range(2)] == [0, TOKENS]
    attacked.renew_salt_key()
    assert attacked.zone("acme").cached == 0
    assert [found(attacked, tenant, asked, cache_salt=before) for tenant in ("burst", "acme")] == [0, 0]
    # What the tenant caches under the previous salt has its own namespace, separate from the current one.
    assert found(attacked, "acme", asked) == 0
    assert found(attacked, "burst", asked, cache_salt=tenant_salt(attacked.salt_key, "acme")) == 0
    assert found(attacked, "acme", asked) == TOKENS
