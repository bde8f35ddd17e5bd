"""Requests for stock vLLM's features, sent by two tenants to one real engine."""

import json
import re

import httpx
import openai
import pytest

from tenantzone_contract.keys.salt import tenant_salt
from tests.engine.features.asking import BLOCK_TOKENS, cached_tokens, complete, generated, text, zone
from tests.engine.features.contention import LENGTHS, PROMPTS
from tests.engine.real_engine import API_PORT

TENANTS = ("acme", "burst")


@pytest.fixture(autouse=True)
def two_zones(engine):
    engine.declare(*(zone(tenant) for tenant in TENANTS))


@pytest.mark.parametrize("tenant", TENANTS)
def test_the_answer_is_that_of_stock(engine, stock, tenant):
    assert generated(engine.client(tenant), PROMPTS["small"], LENGTHS["small"]) == stock.alone["small"]


@pytest.mark.shows("`n` > 1, streams")
def test_several_answers_to_one_prompt_are_of_one_tenant(engine):
    prompt = text(4)
    for tenant, other in (("acme", "burst"), ("burst", "acme")):
        held, generated_before = engine.zone(other).held, engine.zone(tenant).generation_tokens
        # Not seeded: vLLM's CPU worker fails when it prefills a seeded prompt in chunks.
        answers = complete(engine.client(tenant), prompt, 20, n=3, temperature=1)
        assert len({tuple(choice.token_ids) for choice in answers.choices}) == 3
        assert engine.zone(other).held == held
        assert engine.zone(tenant).generation_tokens - generated_before == 60


@pytest.mark.shows("`n` > 1, streams")
def test_a_stream_says_what_the_whole_answer_says(engine):
    prompt = text(3)
    stream = complete(engine.client("acme"), prompt, 30, stream=True)
    streamed = [token for chunk in stream for token in chunk.choices[0].token_ids or ()]
    assert streamed == generated(engine.client("burst"), prompt, 30)


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.shows("structured output")
def test_structured_output_keeps_its_form(engine, tenant):
    client = engine.client(tenant)

    def formed(**form):
        extra = {"structured_outputs": form, "ignore_eos": False}
        return complete(client, text(3), 40, extra=extra).choices[0].text

    assert formed(choice=["yes", "no"]) in ("yes", "no")
    assert re.fullmatch("[0-9]{3}-[a-f]{4}", formed(regex="[0-9]{3}-[a-f]{4}"))
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    pattern = r'\{"ok": (true|false)\}'
    assert isinstance(json.loads(formed(regex=pattern))["ok"], bool)
    assert formed(json=schema).lstrip().startswith("{")


@pytest.mark.shows("prompt logprobs")
def test_prompt_logprobs_read_no_cache_and_leave_one(engine):
    acme, prompt = engine.client("acme"), text(5)
    cached_tokens(acme, prompt)
    answer = complete(acme, prompt, 1, extra={"prompt_logprobs": 1})
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert len(answer.choices[0].prompt_logprobs) == len(prompt)
    assert cached_tokens(acme, prompt) == 4 * BLOCK_TOKENS
    assert cached_tokens(engine.client("burst"), prompt) == 0


@pytest.mark.shows("`cache_salt` of a client")
def test_a_clients_salt_divides_its_own_zone_and_opens_no_other(engine):
    acme, burst, prompt = engine.client("acme"), engine.client("burst"), text(5)

    def hits(client, salt=None):
        return cached_tokens(client, prompt, extra={"cache_salt": salt} if salt else None)

    assert [hits(acme, "a"), hits(acme, "b"), hits(acme)] == [0, 0, 0]
    assert [hits(burst, "a"), hits(burst)] == [0, 0]
    assert [hits(acme, "a"), hits(acme, "b"), hits(acme)] == [4 * BLOCK_TOKENS] * 3


def test_a_salt_that_a_gateway_has_stamped_is_the_frontends_own(engine):
    acme, burst, prompt = engine.client("acme"), engine.client("burst"), text(5)
    stamped = {"cache_salt": tenant_salt(engine.salt_key, "acme")}
    assert cached_tokens(acme, prompt) == 0
    assert cached_tokens(acme, prompt, extra=stamped) == 4 * BLOCK_TOKENS
    assert cached_tokens(burst, prompt, extra=stamped) == 0, "no tenant gains from another's salt"


def test_under_a_new_salt_key_each_cache_is_empty_and_then_goes_on(engine):
    prompt = text(5)
    for tenant in TENANTS:
        cached_tokens(engine.client(tenant), prompt)
    # Blocks that requests have used enter the cache with the step after them.
    engine.wait(lambda: not any(engine.zone(tenant).in_use for tenant in TENANTS), "no request runs")
    before = {tenant: (engine.zone(tenant).cached, engine.zone(tenant).evictions.get("reset", 0)) for tenant in TENANTS}
    engine.renew_salt_key()
    for tenant, (cached, evicted) in before.items():
        assert cached > 0
        assert (engine.zone(tenant).cached, engine.zone(tenant).evictions["reset"]) == (0, evicted + cached)
    acme = engine.client("acme")
    assert [cached_tokens(acme, prompt), cached_tokens(acme, prompt)] == [0, 4 * BLOCK_TOKENS]
    stamped = {"cache_salt": tenant_salt(engine.salt_key, "acme")}
    assert cached_tokens(acme, prompt, extra=stamped) == 4 * BLOCK_TOKENS


@pytest.mark.shows("LoRA")
def test_each_tenants_own_adapter_has_a_cache_of_its_own(engine):
    acme, burst, prompt = engine.client("acme"), engine.client("burst"), text(5)
    plain = generated(acme, prompt, 20)
    adapted = {tenant: generated(engine.client(tenant), prompt, 20, model=f"{tenant}-adapter") for tenant in TENANTS}
    assert len({tuple(plain), *map(tuple, adapted.values())}) == 3, "the adapters change what is said"
    assert cached_tokens(acme, prompt, model="acme-adapter") == 4 * BLOCK_TOKENS
    assert cached_tokens(acme, prompt, model="burst-adapter") == 0, "no hit across adapters"
    assert cached_tokens(burst, prompt, model="acme-adapter") == 0, "no hit across tenants"
    assert {
        tenant: generated(engine.client(tenant), prompt, 20, model=f"{tenant}-adapter") for tenant in TENANTS
    } == adapted


def test_a_tenant_can_use_the_adapters_that_its_zone_lists_and_sees_no_others(engine):
    acme, burst, prompt = engine.client("acme"), engine.client("burst"), text(2)
    engine.declare(zone("acme", adapters=("acme-adapter",)), zone("burst"))
    assert generated(acme, prompt, 1, model="acme-adapter")
    for model in ("burst-adapter", "nobodys"):
        with pytest.raises(openai.NotFoundError, match=f"The model `{model}` does not exist"):
            complete(acme, prompt, model=model)
    assert [each.id for each in acme.models.list()] == ["tiny", "acme-adapter"]
    assert {each.id for each in burst.models.list()} == {"tiny", "acme-adapter", "burst-adapter"}


@pytest.mark.shows("beam search (`use_beam_search`)")
def test_each_beam_is_a_request_of_its_tenant(engine):
    prompt, beams, tokens = text(3), 2, 4
    before = {tenant: engine.zone(tenant) for tenant in TENANTS}
    answer = complete(engine.client("acme"), prompt, tokens, extra={"use_beam_search": True}, n=beams)
    assert len({choice.text for choice in answer.choices}) == beams
    after = {tenant: engine.zone(tenant) for tenant in TENANTS}
    # One beam begins, and each token after the first is looked up in all beams.
    assert after["acme"].generation_tokens - before["acme"].generation_tokens == 1 + beams * (tokens - 1)
    assert after["acme"].prefix_hit_tokens - before["acme"].prefix_hit_tokens >= 2 * BLOCK_TOKENS * beams
    assert after["burst"].prefix_query_tokens == before["burst"].prefix_query_tokens
    assert cached_tokens(engine.client("acme"), prompt) == 2 * BLOCK_TOKENS
    assert cached_tokens(engine.client("burst"), prompt) == 0


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v1/rerank", "it creates requests from lists that the frontend does not count"),
        ("/v1/load_lora_adapter", "it changes or stops the engine for all tenants"),
        ("/reset_prefix_cache", "it changes or stops the engine for all tenants"),
    ],
)
def test_routes_that_are_refused_say_why(engine, path, reason):
    refusal = httpx.post(
        f"http://{engine.address}:{API_PORT}{path}",
        json={},
        headers={"Authorization": "Bearer key-of-acme"},
        timeout=60,
    )
    assert refusal.status_code == 403
    assert reason in refusal.json()["error"]["message"]


def test_sampling_was_warmed_up_before_the_engine_was_ready(engine):
    """Also with adapters. `test_first_use` checks what is compiled."""
    assert "sampling could not be warmed up" not in engine.log.read_text()
