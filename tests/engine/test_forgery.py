"""Forged requests to the real engine, the short form of `python -m bench.attacks.forge.forgery`."""

import asyncio
import json
from collections.abc import Sequence

import httpx
import pytest

from bench.attacks.forge.forgery import Forgeries, figures_of, forge_at
from bench.attacks.forge.forging import Forged, Forger, forge, on_the_wire
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Lending
from tests.engine.real_engine import API_PORT, RealEngine

pytestmark = pytest.mark.engine

REQUESTS = 300
VICTIMS = ("acme", "gold")
OWN = {"Authorization": "Bearer key-of-burst"}


class Attacked:
    """The real engine, as the attack uses it."""

    def __init__(self, engine: RealEngine) -> None:
        self.url = f"http://{engine.address}:{API_PORT}"
        self.metrics = engine.metrics


@pytest.fixture(scope="module")
def attacked(engine: RealEngine) -> Attacked:
    engine.add_keys("gold")
    zones = [
        ZoneConfig(name=name, tenant=name, generation=1, reserved="30%", lending=Lending(lendable="0%"))
        for name in VICTIMS
    ]
    engine.declare(*zones, ZoneConfig(name="burst", tenant="burst", generation=1))
    for name in VICTIMS:
        engine.client(name).completions.create(model="tiny", prompt="A secret of mine. " * 20, max_tokens=1)
    return Attacked(engine)


def attack(attacked: Attacked, forged: Sequence[Forged]) -> Forgeries:
    return asyncio.run(forge_at(attacked, forged, VICTIMS, lambda _: None))


def check(found: Forgeries, sent: int) -> None:
    assert found.sent == sent
    assert not found.moved, "a victim's zone was charged"
    assert not found.revealing
    assert not found.hung
    assert found.is_alive


def served(attacked: Attacked) -> float:
    return sum(
        float(count)
        for name, count in figures_of(attacked.metrics(), "burst").items()
        if name.startswith("tenantzone_zone_prompt_tokens_total")
    )


def test_no_forged_request_is_taken_for_another_tenants(attacked: Attacked):
    forged = forge(Forger("tiny", OWN, VICTIMS), REQUESTS, seed_number=1)
    assert len(forged) == REQUESTS
    before = served(attacked)
    found = attack(attacked, forged)
    check(found, len(forged))
    assert not found.failed, "nothing that a client sends is the server's fault"
    # Enough of them reach the engine, in the forger's own name, and most do not.
    assert served(attacked) > before
    assert found.statuses.keys() >= {200, 400, 401, 404, 413}


def test_no_request_by_the_servers_own_description_is_taken_for_another_tenants(attacked: Attacked):
    pytest.importorskip("schemathesis")
    from bench.attacks.forge.described import draw_described

    description = httpx.get(f"{attacked.url}/openapi.json", headers=OWN, timeout=60).json()
    forged = draw_described(description, OWN, REQUESTS, seed_number=1)
    check(attack(attacked, forged), len(forged))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("structured_outputs", 1.5),
        ("stop", "\ud800"),
        ("bad_words", ["\ud800"]),
        ("request_id", "\ud800"),
        ("session_id", "\ud800"),
        ("vllm_xargs", {"a": "\ud800"}),
    ],
)
def test_what_vllm_does_not_anticipate_is_the_clients_mistake_and_named(
    attacked: Attacked, path: str, field: str, value: object
):
    asked = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "model": "tiny", "max_tokens": 1}
    headers = {**OWN, "Content-Type": "application/json"}
    answer = httpx.post(attacked.url + path, content=json.dumps({**asked, field: value}), headers=headers, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("content", [[{"type": "refusal", "refusal": "no"}], []], ids=["a refusal", "nothing"])
def test_an_answer_without_a_text_in_a_conversation_is_the_clients_mistake(attacked: Attacked, content: list[object]):
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    answer = httpx.post(
        f"{attacked.url}/v1/responses", json={"model": "tiny", "input": [message]}, headers=OWN, timeout=60
    )
    assert answer.status_code == 400


def test_a_list_of_mistakes_is_answered_with_the_first(attacked: Attacked):
    body = {"model": "tiny", "input": [{}] * 1000}
    answer = httpx.post(f"{attacked.url}/v1/responses", json=body, headers=OWN, timeout=60)
    assert answer.status_code == 400
    # Each of a thousand has 233.
    assert int(answer.json()["error"]["message"].split()[0]) < 1000


def test_the_attack_notices_who_uses_the_victims_key(attacked: Attacked):
    body = b'{"model": "tiny", "prompt": "a", "max_tokens": 1}'
    headers = {"Authorization": "Bearer key-of-acme", "Content-Type": "application/json"}
    found = attack(attacked, [Forged(on_the_wire("POST", "/v1/completions", headers, body))])
    assert found.statuses == {200: 1}
    assert any(line.startswith("tenantzone_zone_prompt_tokens_total") for line in found.moved)
