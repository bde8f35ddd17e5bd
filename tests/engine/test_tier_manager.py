"""The CPU memory tier's manager, with vLLM's own classes: what each tenant stores, finds and may load."""

import itertools

import pytest
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.engine.tiers.tier_manager import ZoneOffloadingManager
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds
from tests.zones.core import declare

HIT, MISS, PENDING = LookupResult.HIT, LookupResult.MISS, LookupResult.HIT_PENDING
NUMBERS = itertools.count()


class Tenants:
    """A manager of 10 chunks, and requests of tenants; without shares, no zones are declared yet."""

    def __init__(self, bounds=TransferBounds(100, 100), **shares):  # noqa: B008
        tier = Tier("cpu", 10, 1, bounds)
        self.shares = {tenant: (TierShare(tier="cpu", **share),) for tenant, share in shares.items()}
        self.manager = ZoneOffloadingManager(tier, enable_events=True)
        if shares:
            self.declare(*(declare(tenant) for tenant in shares))

    def declare(self, *zones):
        zones = [zone.model_copy(update={"tiers": self.shares.get(zone.tenant, ())}) for zone in zones]
        config = make_config(next(NUMBERS) + 1, PoolConfig(namespace="n", name="p"), zones)
        list(self.manager.apply(config))

    def request(self, tenant):
        context = ReqContext(f"request-{next(NUMBERS)}")
        self.manager.bind(context.req_id, tenant)
        self.manager.on_new_request(context)
        return context

    def store(self, context, keys):
        output = self.manager.prepare_store(keys, context)
        self.manager.complete_store(set(output.keys_to_store), context)
        self.manager.tier.check()
        assert self.manager._get_num_free_chunks() == self.manager.tier.free
        # vLLM's gauges use this number.
        assert self.manager._num_evictable_cache_chunks == self.manager.tier.ledger.cached_blocks
        return output

    def lookups(self, context, keys):
        return [self.manager.lookup(key, context) for key in keys]


def prompt(name, length):
    return [make_offload_key(f"{name}-{number}".encode(), 0) for number in range(length)]


def test_what_a_tenant_stored_it_finds_and_no_other():
    tenants = Tenants(acme={}, late={})
    acme, late, keys = tenants.request("acme"), tenants.request("late"), prompt("a", 3)
    assert tenants.store(acme, keys).keys_to_store == keys
    assert tenants.lookups(tenants.request("acme"), keys) == [HIT, HIT, HIT]
    assert tenants.lookups(late, keys) == [MISS, MISS, MISS], "even with the same hash"


def test_who_was_not_bound_stores_and_finds_nothing():
    tenants = Tenants(acme={})
    keys = prompt("a", 3)
    tenants.store(tenants.request("acme"), keys)
    stranger = ReqContext("stranger", kv_transfer_params={"tenant": "acme", "zone": "acme"})
    tenants.manager.on_new_request(stranger)
    assert tenants.lookups(stranger, keys) == [MISS, MISS, MISS]
    assert tenants.manager.prepare_store(prompt("b", 2), stranger).keys_to_store == []
    tenants.manager.on_request_finished(stranger)


def test_a_neighbour_can_not_push_out_what_is_reserved():
    tenants = Tenants(gold={"reserved": 4}, burst={})
    gold, burst, keys = tenants.request("gold"), tenants.request("burst"), prompt("g", 4)
    tenants.store(gold, keys)
    for number in range(5):
        tenants.store(burst, prompt(f"b{number}", 6))
    assert tenants.lookups(tenants.request("gold"), keys) == [HIT] * 4


def test_a_store_is_cut_to_what_there_is_and_never_refused_whole():
    tenants = Tenants(gold={"reserved": 4}, burst={})
    tenants.request("gold")
    burst, keys = tenants.request("burst"), prompt("b", 20)
    assert tenants.store(burst, keys).keys_to_store == keys[:6], "its beginning"
    assert tenants.store(burst, prompt("b", 25)[20:]).keys_to_store == [], "whose end does not push it out"


def test_who_stores_learns_which_keys_went():
    tenants = Tenants(acme={"limit": 3})
    old, new = prompt("old", 3), prompt("new", 2)
    first = tenants.request("acme")
    tenants.store(first, old)
    tenants.manager.on_request_finished(first)
    list(tenants.manager.take_events())
    assert tenants.store(tenants.request("acme"), new).evicted_keys == [old[2], old[1]], "from its end"
    removed, stored = tenants.manager.take_events()
    assert (removed.removed, removed.keys) == (True, [old[2], old[1]])
    assert (stored.removed, set(stored.keys)) == (False, set(new))


def test_what_is_being_stored_is_pending_and_then_a_hit():
    tenants = Tenants(acme={})
    acme, keys = tenants.request("acme"), prompt("a", 2)
    tenants.manager.prepare_store(keys, acme)
    assert tenants.lookups(tenants.request("acme"), keys) == [PENDING, PENDING]
    tenants.manager.complete_store(keys, acme)
    assert tenants.lookups(tenants.request("acme"), keys) == [HIT, HIT]


def test_a_store_that_failed_is_a_miss_and_its_room_is_free():
    tenants = Tenants(acme={})
    acme, keys = tenants.request("acme"), prompt("a", 2)
    tenants.manager.prepare_store(keys, acme)
    tenants.manager.complete_store(keys, acme, success=False)
    assert tenants.lookups(acme, keys) == [MISS, MISS]
    assert tenants.manager.tier.free == tenants.manager._get_num_free_chunks() == 10


def test_what_is_past_the_bound_of_loads_is_a_miss():
    tenants = Tenants(bounds=TransferBounds(stores=100, loads=4), acme={})
    keys = prompt("a", 6)
    tenants.store(tenants.request("acme"), keys)
    one, other = tenants.request("acme"), tenants.request("acme")
    for _ in range(2):
        assert tenants.lookups(one, keys) == [HIT] * 4 + [MISS] * 2, "asked again, it is the same"
    tenants.manager.prepare_load(keys[:4], one)
    assert tenants.lookups(other, keys) == [MISS] * 6
    tenants.manager.complete_load(set(keys[:4]), one)
    assert tenants.lookups(other, keys) == [HIT] * 4 + [MISS] * 2


def test_what_is_being_loaded_stays_however_much_others_store():
    tenants = Tenants(acme={}, gold={"reserved": "100%"})
    acme, keys = tenants.request("acme"), prompt("a", 4)
    tenants.store(acme, keys)
    tenants.manager.prepare_load(keys, acme)
    gold = tenants.request("gold")
    assert len(tenants.store(gold, prompt("g", 10)).keys_to_store) == 6
    tenants.manager.complete_load(keys, acme)
    assert len(tenants.store(gold, prompt("h", 4)).keys_to_store) == 4, "and goes when it was loaded"
    assert tenants.lookups(acme, keys) == [MISS] * 4


@pytest.mark.parametrize("has_finished", [False, True])
def test_a_purge_finds_what_is_in_transfer_too(has_finished):
    tenants = Tenants(acme={})
    acme, loaded, stored = tenants.request("acme"), prompt("l", 2), prompt("s", 2)
    tenants.store(acme, loaded)
    tenants.manager.prepare_load(loaded, acme)
    tenants.manager.prepare_store(stored, acme)
    tenants.declare(declare("acme", purge="p"))
    if has_finished:
        tenants.manager.on_request_finished(acme)
    tenants.manager.complete_load(loaded, acme)
    tenants.manager.complete_store(stored, acme)
    assert tenants.lookups(tenants.request("acme"), loaded + stored) == [MISS] * 4
    assert tenants.manager.tier.free == tenants.manager._get_num_free_chunks() == 10


def test_before_zones_are_declared_all_share_the_tier():
    manager = ZoneOffloadingManager(Tier("cpu", 10, 1, TransferBounds(100, 100)))
    keys, contexts = prompt("a", 3), [ReqContext("one"), ReqContext("two")]
    for context in contexts:
        manager.bind(context.req_id, None)
        manager.on_new_request(context)
    manager.complete_store(manager.prepare_store(keys, contexts[0]).keys_to_store, contexts[0])
    assert [manager.lookup(key, contexts[1]) for key in keys] == [HIT] * 3


def test_a_reset_forgets_all_and_goes_on():
    tenants = Tenants(acme={})
    acme, keys = tenants.request("acme"), prompt("a", 4)
    tenants.store(acme, keys)
    tenants.manager.prepare_load(keys[:2], acme)
    tenants.manager.reset_cache()
    assert tenants.lookups(acme, keys) == [MISS] * 4
    assert len(tenants.store(acme, prompt("b", 10)).keys_to_store) == 10
    tenants.manager.on_request_finished(acme)


def test_what_others_store_where_a_request_had_its_own_is_not_used_when_it_ends():
    tenants = Tenants(acme={})
    first, second, keys = tenants.request("acme"), tenants.request("acme"), prompt("b", 10)
    tenants.store(first, prompt("a", 4))
    tenants.store(second, keys)
    for context in (second, first):
        tenants.manager.on_request_finished(context)
    assert tenants.store(tenants.request("acme"), prompt("c", 3)).evicted_keys == keys[:-4:-1], "its end goes first"


class TestOfUseTogetherOnly:
    """With several groups of KV caches: each chunk in the tier belongs to a whole hit, or a request counts on it."""

    @pytest.fixture
    def tenants(self):
        return Tenants(acme={})

    def begin(self, tenants, keys, tenant="acme"):
        context = tenants.request(tenant)
        tenants.manager.know_prompt(context, lambda: [keys], len(keys))
        return context

    def keep(self, tenants, keys):
        """Stores chunks of a request that has ended."""
        context = self.begin(tenants, keys)
        assert tenants.store(context, keys).keys_to_store == keys
        tenants.manager.on_request_finished(context)

    def useless(self, tenants):
        tier = tenants.manager.tier
        cached = [chunk_id for zone in tier.ledger.zones.values() for chunk_id in zone.cached]
        return [chunk_id for chunk_id in cached if chunk_id not in tier.links and not tier.is_counted_on(chunk_id)]

    def test_of_a_hit_nothing_stays_for_a_request_that_had_its_own_there(self, tenants):
        keys = prompt("a", 6)
        request = self.begin(tenants, keys)
        tenants.store(request, keys[:3])
        self.keep(tenants, prompt("b", 10))
        assert tenants.store(request, keys[3:]).keys_to_store == keys[3:]
        assert self.useless(tenants) == []
        assert tenants.manager.tier.ledger.held_blocks == 3

    def test_what_a_request_has_found_stays_until_it_ends_even_if_it_was_not_loaded(self, tenants):
        found, keys = prompt("a", 8), prompt("b", 5)
        self.keep(tenants, found)
        request = self.begin(tenants, [*found[:2], *keys])
        assert tenants.lookups(request, found[:2]) == [HIT, HIT]
        assert tenants.store(request, keys).keys_to_store == keys
        assert self.useless(tenants) == []
        assert tenants.lookups(tenants.request("acme"), found) == [HIT] * 2 + [MISS] * 6
        tenants.manager.on_request_finished(request)
        assert self.useless(tenants) == []
        assert tenants.lookups(tenants.request("acme"), [*found[:2], *keys]) == [HIT] * 7
        self.keep(tenants, prompt("c", 10))
        assert self.useless(tenants) == []

    def test_what_a_request_has_found_goes_with_it_when_it_ends_halfway(self, tenants):
        found, keys = prompt("a", 8), prompt("b", 5)
        self.keep(tenants, found)
        request = self.begin(tenants, [*found[:2], *keys, *prompt("c", 1)])
        tenants.lookups(request, found[:2])
        tenants.store(request, keys)
        tenants.manager.on_request_finished(request)
        assert tenants.manager.tier.ledger.held_blocks == 0

    def test_what_a_request_from_before_a_zone_has_stored_too_stays_for_the_zones_requests_only(self):
        tenants, keys = Tenants(), prompt("a", 6)
        early = self.begin(tenants, keys, tenant=None)
        tenants.declare(declare("acme"))
        self.keep(tenants, keys)
        assert tenants.store(early, keys).keys_to_store == []
        tenants.store(self.begin(tenants, prompt("b", 5)), prompt("b", 5))
        for _ in range(2):
            assert self.useless(tenants) == []
            assert tenants.manager.tier.ledger.held_blocks == 5
            tenants.manager.on_request_finished(early)
