"""vLLM's KV events, published for both tenants' blocks by a real engine."""

import pytest
from vllm.distributed.kv_events import BlockRemoved

from tests.engine.features.asking import cached_tokens, text, zone
from tests.engine.features.kv_events import hashes, salts, subscribed


@pytest.mark.shows("KV events")
def test_events_distinguish_tenants_by_digests_and_name_none(engine):
    engine.declare(zone("acme"), zone("burst"))
    prompt = text(5)
    with subscribed(engine) as events:
        stored = {}
        for tenant in ("acme", "burst"):
            cached_tokens(engine.client(tenant), prompt, extra={"cache_salt": "client-secret"})
            stored[tenant] = events.stored(4)
        assert not hashes(stored["acme"]) & hashes(stored["burst"])
        assert len(salts(stored["acme"])) == len(salts(stored["burst"])) == 1
        assert salts(stored["acme"]) != salts(stored["burst"])
        assert not any(name in events.raw for name in (b"acme", b"burst", b"client-secret", b"tenantzone"))


@pytest.mark.shows("KV events")
def test_what_a_zone_loses_is_published_as_removed_and_none_of_another_zones(engine):
    engine.declare(zone("acme"), zone("burst"))
    with subscribed(engine) as events:
        blocks = {}
        for tenant in ("acme", "burst"):
            cached_tokens(engine.client(tenant), text(5))
            blocks[tenant] = hashes(events.stored(4))
        engine.declare(zone("acme", limit=0), zone("burst"))
        cached_tokens(engine.client("burst"), text(2))
        removed = hashes(events.until(BlockRemoved, lambda found: blocks["acme"] <= found))
    assert not removed & blocks["burst"]
