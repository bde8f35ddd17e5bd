"""What a tenant can learn about another's prompts from the real engine; `bench.attacks` has the times, and stock's."""

from dataclasses import dataclass

import httpx
import pytest

from bench.attacks.channels import listen
from bench.attacks.probing import Probe, probe
from tenantzone_contract.zone_config.config import ZoneConfig
from tests.engine.real_engine import API_PORT, RealEngine

pytestmark = pytest.mark.engine

PAIRS = 4
WORDS = 120
"""Words of five bytes, and each byte is a token: 18 blocks."""


@dataclass
class Tenants:
    """Some tenants of an engine, numbered as the attack numbers them."""

    engine: RealEngine
    names: tuple[str, ...]
    model: str = "tiny"

    @property
    def url(self) -> str:
        return f"http://{self.engine.address}:{API_PORT}"

    def headers_of(self, tenant: int) -> dict[str, str]:
        return {"Authorization": f"Bearer key-of-{self.names[tenant]}"}


@pytest.fixture(scope="module")
def declared(engine: RealEngine) -> RealEngine:
    engine.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in ("acme", "burst")))
    return engine


async def reported_cached_tokens(engine: RealEngine, *names: str, salt: str | None, seed: int) -> int:
    how = Probe(samples=PAIRS, prompt_words=WORDS, seed=seed, salt=salt)
    return (await probe(Tenants(engine, names), how, lambda _: None)).cached_tokens


@pytest.mark.parametrize("salt", [None, "what-the-victim-sends"])
async def test_the_attack_finds_what_the_attacker_has_sent_itself(declared: RealEngine, salt: str | None):
    # Without this, the next test would pass with an attack that finds nothing anywhere.
    assert await reported_cached_tokens(declared, "burst", "burst", salt=salt, seed=1) > 0


@pytest.mark.parametrize("salt", [None, "what-the-victim-sends"])
async def test_no_answer_reveals_what_another_tenant_has_cached(declared: RealEngine, salt: str | None):
    assert await reported_cached_tokens(declared, "acme", "burst", salt=salt, seed=2) == 0


@pytest.mark.parametrize("salt", [None, "what-the-victim-sends"])
async def test_neither_errors_nor_figures_nor_logprobs_reveal_another_tenants_prompts(
    declared: RealEngine, salt: str | None
):
    reported = await listen(
        Tenants(declared, ("acme", "burst")), Probe(samples=PAIRS, prompt_words=WORDS, seed=3, salt=salt)
    )
    assert (reported.error_texts, reported.figures) == (0, 0)
    assert reported.by_logprobs.p_value > 0.05


@pytest.mark.parametrize("path", ["/metrics", "/load", "/server_info", "/kv_event_sources"])
def test_what_shows_all_tenants_is_closed(declared: RealEngine, path: str):
    tenants = Tenants(declared, ("burst",))
    for headers in ({}, tenants.headers_of(0)):
        answer = httpx.get(tenants.url + path, headers=headers, timeout=60)
        assert answer.status_code == 403
        assert "acme" not in answer.text
