"""Embeddings of a real engine: only its own tenant finds a text again, however much another tenant floods."""

import httpx
import openai
import pytest

from tests.engine.real_engine import API_PORT, StartingEngine
from tests.shared_engine import runs_here
from tests.zones.core import declare

pytestmark = pytest.mark.flagged_engine

BLOCK_TOKENS = 32
BLOCKS = 64
TEXT_BLOCKS = 10


def _options(address, folder):
    return [
        "--runner", "pooling", "--convert", "embed", "--enable-prefix-caching",
        "--num-gpu-blocks-override", str(BLOCKS + 1), "--max-model-len", str(BLOCKS * BLOCK_TOKENS),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def starting(request):
    assert runs_here(request.session) or hasattr(request.config, "workerinput")
    starting = StartingEngine(_options)
    yield starting
    starting.stop()


@pytest.fixture(scope="module")
def numbers(starting):
    """The numbers of a text before any zone was declared, as in stock vLLM."""
    return embed(starting.await_health(), "unknown", text("the same"))


@pytest.fixture(scope="module")
def engine(starting, numbers):
    engine = starting.engine
    engine.add_keys("acme", "burst")
    engine.declare(declare("acme", reserved=BLOCKS // 2), declare("burst", limit=BLOCKS // 2))
    return engine


def text(name):
    """A text of 10 blocks; a byte is a token."""
    return (f"{name}: " * 400)[: TEXT_BLOCKS * BLOCK_TOKENS + 5]


def embed(engine, tenant, *texts):
    answer = engine.client(tenant).embeddings.create(model="tiny", input=list(texts), encoding_format="float")
    return [each.embedding for each in answer.data]


def post(engine, tenant, path, **body):
    headers = {"Authorization": f"Bearer key-of-{tenant}"}
    return httpx.post(
        f"http://{engine.address}:{API_PORT}{path}", json={"model": "tiny", **body}, headers=headers, timeout=60
    )


def found(engine, tenant, ask):
    """Returns the tokens found cached by a request of the tenant, and the answer."""
    before = engine.zone(tenant).prefix_hit_tokens
    answer = ask()
    return engine.zone(tenant).prefix_hit_tokens - before, answer


@pytest.mark.shows("embeddings, classification, pooling (`--runner pooling`, `--convert`)")
def test_a_text_is_found_again_by_its_own_tenant_only_through_a_flood_with_the_same_numbers(engine, numbers):
    same = pytest.approx(numbers[0], abs=1e-5)
    first, answer = found(engine, "acme", lambda: embed(engine, "acme", text("the same")))
    assert (first, answer[0]) == (0, same)
    other, answer = found(engine, "burst", lambda: embed(engine, "burst", text("the same")))
    assert (other, answer[0]) == (0, same)
    for number in range(0, 3 * BLOCKS // TEXT_BLOCKS, 4):
        embed(engine, "burst", *(text(f"noise {number + each}") for each in range(4)))
    again, answer = found(engine, "acme", lambda: embed(engine, "acme", text("the same")))
    assert (again, answer[0]) == (TEXT_BLOCKS * BLOCK_TOKENS, same)


@pytest.mark.shows("embeddings, classification, pooling (`--runner pooling`, `--convert`)")
def test_each_text_of_a_list_is_a_request_of_its_tenant(engine):
    hits, answer = found(engine, "acme", lambda: embed(engine, "acme", *[text("one"), text("two"), text("three")] * 2))
    assert len(answer) == 6
    assert answer[:3] == [pytest.approx(each, abs=1e-5) for each in answer[3:]]
    # Texts in one request may be computed in one batch.
    again, _ = found(engine, "acme", lambda: embed(engine, "acme", text("one"), text("two"), text("three")))
    assert (hits % BLOCK_TOKENS, again) == (0, 3 * TEXT_BLOCKS * BLOCK_TOKENS)
    assert engine.zone("acme").generation_tokens == 0


@pytest.mark.shows("embeddings, classification, pooling (`--runner pooling`, `--convert`)")
def test_another_route_finds_what_the_first_one_has_left(engine):
    embed(engine, "acme", text("routed"))
    hits, answer = found(engine, "acme", lambda: post(engine, "acme", "/pooling", input=text("routed"), task="embed"))
    assert (answer.status_code, hits) == (200, TEXT_BLOCKS * BLOCK_TOKENS)


def test_what_does_not_fit_into_a_zones_limit_is_the_clients_mistake(engine):
    with pytest.raises(openai.BadRequestError, match="32 blocks, which hold"):
        embed(engine, "burst", "x" * (BLOCKS // 2 + 1) * BLOCK_TOKENS)
    assert embed(engine, "burst", "short")


def test_without_a_key_nothing_is_embedded(engine):
    with pytest.raises(openai.AuthenticationError):
        embed(engine, "stranger", "short")
