"""A tier below the engine: floors, limits, lending, chunks in transfer, ttl and purges, in chunks."""

from itertools import chain

import pytest

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.zones.tiers.offloading import tokens_to_offload
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds
from tests.zones.core import declare

ALL = 1_000
UNBOUNDED = TransferBounds(ALL, ALL)


class Chunks:
    """A tier of 100 chunks with zones that store and load."""

    def __init__(self, *zones, bounds=UNBOUNDED, pool=None, **shares):
        self.tier = Tier("cpu", 100, 1, bounds)
        self.shares = {tenant: TierShare(tier="cpu", **share) for tenant, share in shares.items()}
        self.generation = 0
        self.reload(*(zones or [declare(tenant) for tenant in shares]), **(pool or {}))

    def reload(self, *zones, now=0.0, **pool):
        self.generation += 1
        zones = [zone.model_copy(update={"tiers": self._shares_of(zone)}) for zone in zones]
        return self.tier.apply(make_config(self.generation, PoolConfig(namespace="n", name="p", **pool), zones), now)

    def _shares_of(self, zone):
        return (self.shares[zone.tenant],) if zone.tenant in self.shares else ()

    def zone(self, tenant):
        return self.tier.zone_for(tenant, self.tier.ledger.now)

    def active(self, tenant):
        zone = self.zone(tenant)
        self.tier.request_arrived(zone, self.tier.ledger.now)
        return zone

    def begin(self, zone, count):
        """Begins to store `count` chunks. Returns those for which there was room."""
        granted, _ = self.tier.make_room(zone, count)
        free = [chunk for chunk, owner in enumerate(self.tier.ledger.owner) if owner is None]
        assert len(free) >= granted
        self.tier.store(zone, free[:granted])
        return free[:granted]

    def keep(self, zone, count):
        chunks = self.begin(zone, count)
        assert self.tier.stored(chunks) == []
        self.tier.check()
        return chunks


def test_a_store_takes_what_is_free():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    assert len(chunks.keep(acme, 70)) == 70
    assert acme.held == 70


def test_what_another_active_zone_reserves_is_left_alone():
    chunks = Chunks(acme={}, gold={"reserved": 40})
    acme, gold = chunks.active("acme"), chunks.active("gold")
    assert len(chunks.keep(acme, 100)) == 60
    assert len(chunks.keep(gold, 40)) == 40


def test_a_quiet_zone_lends_and_has_its_reservation_back_at_once():
    chunks = Chunks(acme={}, gold={"reserved": "40%"})
    acme = chunks.active("acme")
    chunks.keep(acme, 100)
    gold = chunks.active("gold")
    assert len(chunks.keep(gold, 40)) == 40
    assert acme.held == 60


def test_what_is_locked_for_an_owner_stays_obtainable_while_a_borrower_turns_over_its_own():
    chunks = Chunks(acme={}, gold={"reserved": 40})
    acme = chunks.active("acme")
    chunks.keep(acme, 100)
    gold = chunks.active("gold")
    assert len(chunks.begin(acme, 80)) == 60
    assert len(chunks.begin(gold, 40)) == 40


def test_who_owes_chunks_that_are_due_stores_within_its_reservation_only():
    lender = declare("gold", max_loan=10.0)
    chunks = Chunks(declare("acme"), lender, acme={}, gold={"reserved": 40})
    acme = chunks.active("acme")
    storing = chunks.begin(acme, 100)
    for second in (1.0, 12.0):
        chunks.tier.upkeep(second)
    chunks.tier.stored(storing[:20], success=False)
    assert acme.overdue
    assert chunks.begin(acme, 5) == []
    chunks.tier.stored(storing[20:60], success=False)
    chunks.tier.upkeep(13.0)
    assert len(chunks.begin(acme, 5)) == 5


def test_a_zone_within_its_reservation_is_not_evicted_for_another_ones_surplus():
    chunks = Chunks(acme={}, gold={"reserved": 40})
    acme, gold = chunks.active("acme"), chunks.active("gold")
    chunks.keep(gold, 40)
    chunks.keep(acme, 500)
    assert (acme.held, gold.held) == (60, 40)
    assert len(chunks.keep(acme, 30)) == 30, "it turns over its own"
    assert (acme.held, gold.held) == (60, 40)


def test_a_zone_never_holds_more_than_its_limit_and_turns_over_its_own():
    chunks = Chunks(acme={"limit": 30})
    acme = chunks.active("acme")
    first = chunks.keep(acme, 30)
    second = chunks.keep(acme, 10)
    assert acme.held == 30
    assert set(second) == set(first[:10]), "the least recently used went"


def test_what_was_used_last_goes_last():
    chunks = Chunks(acme={"limit": 3})
    acme = chunks.active("acme")
    old, middle, new = chunks.keep(acme, 3)
    chunks.tier.use(acme, [old])
    assert chunks.keep(acme, 2) == sorted([middle, new])
    assert old in acme.cached


def test_the_end_of_a_prompt_does_not_push_out_its_beginning():
    chunks = Chunks(acme={"limit": 4})
    acme = chunks.active("acme")
    old, first, second, third = chunks.keep(acme, 4)
    assert chunks.tier.make_room(acme, 3, [first, second, third]) == (1, [old])
    assert list(acme.cached) == [third, second, first]


def test_a_newcomer_gets_its_share_of_unreserved_blocks():
    chunks = Chunks(acme={}, late={})
    acme, late = chunks.active("acme"), chunks.active("late")
    chunks.keep(acme, 100)
    assert len(chunks.keep(late, 80)) == 50
    assert (acme.held, late.held) == (50, 50)


@pytest.mark.parametrize("way", ["storing", "loading"])
def test_a_chunk_in_transfer_is_never_evicted(way):
    chunks = Chunks(acme={}, gold={"reserved": 100})
    acme = chunks.active("acme")
    pinned = chunks.begin(acme, 30)
    if way == "loading":
        chunks.tier.stored(pinned)
        chunks.tier.load(acme, pinned)
    gold = chunks.active("gold")
    assert len(chunks.begin(gold, 100)) == 70
    assert all(chunks.tier.ledger.owner[chunk] is acme for chunk in pinned)


def test_the_stores_in_flight_of_each_zone_are_bounded():
    chunks = Chunks(bounds=TransferBounds(stores=8, loads=ALL), acme={}, late={})
    acme, late = chunks.active("acme"), chunks.active("late")
    begun = chunks.begin(acme, 20)
    assert len(begun) == 8
    assert chunks.begin(acme, 1) == []
    assert len(chunks.begin(late, 5)) == 5, "others are not held back"
    chunks.tier.stored(begun[:3])
    assert len(chunks.begin(acme, 20)) == 3


def test_the_loads_in_flight_of_each_zone_are_bounded():
    chunks = Chunks(bounds=TransferBounds(stores=ALL, loads=8), acme={})
    acme = chunks.active("acme")
    stored = chunks.keep(acme, 20)
    assert chunks.tier.loadable(acme) == 8
    chunks.tier.load(acme, stored[:6])
    assert chunks.tier.loadable(acme) == 2
    chunks.tier.loaded(stored[:6])
    assert chunks.tier.loadable(acme) == 8


def test_no_load_is_longer_than_what_the_zone_may_hold():
    chunks = Chunks(acme={"limit": 5})
    assert chunks.tier.loadable(chunks.active("acme")) == 5


def test_a_chunk_that_two_requests_load_is_in_transfer_until_both_have_it():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    (chunk,) = chunks.keep(acme, 1)
    chunks.tier.load(acme, [chunk])
    chunks.tier.load(acme, [chunk])
    chunks.tier.loaded([chunk])
    assert acme.in_use == 1
    chunks.tier.loaded([chunk])
    assert acme.in_use == 0
    assert chunks.tier.has_stored(acme, chunk)


def test_a_store_that_fails_leaves_nothing():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    begun = chunks.begin(acme, 4)
    assert chunks.tier.is_storing(acme, begun[0])
    assert chunks.tier.stored(begun, success=False) == begun
    assert chunks.tier.free == 100
    assert not chunks.tier.has_stored(acme, begun[0])


def test_a_zone_finds_its_own_chunks_and_no_others():
    chunks = Chunks(acme={}, late={})
    acme, late = chunks.active("acme"), chunks.active("late")
    (chunk,) = chunks.keep(acme, 1)
    assert not chunks.tier.has_stored(late, chunk)
    chunks.tier.load(acme, [chunk])
    assert chunks.tier.has_stored(acme, chunk)
    assert not chunks.tier.has_stored(late, chunk)


def test_chunks_unused_for_their_ttl_go():
    chunks = Chunks(acme={"ttl_seconds": 10})
    acme = chunks.active("acme")
    old = chunks.keep(acme, 2)
    chunks.tier.upkeep(6.0)
    chunks.tier.use(acme, old[:1])
    assert chunks.tier.upkeep(11.0) == old[1:]
    assert chunks.tier.upkeep(17.0) == old[:1]


def test_without_one_of_the_tier_the_zones_own_ttl_counts():
    chunks = Chunks(declare("acme", ttl=5.0), acme={})
    acme = chunks.active("acme")
    assert sorted(chunks.keep(acme, 2)) == sorted(chunks.tier.upkeep(6.0) or [])


def test_of_the_two_the_shorter_ttl_counts():
    chunks = Chunks(declare("acme", ttl=20.0), acme={"ttl_seconds": 5})
    acme = chunks.active("acme")
    assert sorted(chunks.keep(acme, 2)) == sorted(chunks.tier.upkeep(6.0) or [])


def test_a_purge_gives_up_what_is_stored_and_what_is_in_transfer_is_found_no_more():
    chunks = Chunks(acme={}, late={})
    acme, late = chunks.active("acme"), chunks.active("late")
    kept, loading, storing = chunks.keep(acme, 5), chunks.keep(acme, 3), chunks.begin(acme, 2)
    others = chunks.keep(late, 4)
    chunks.tier.load(acme, loading)
    assert sorted(chunks.reload(declare("acme", purge="p1"), declare("late"))) == kept
    assert (acme.purge.evicted, acme.purge.withdrawn, acme.purge.is_complete) == (5, 5, True)
    assert not any(chunks.tier.has_stored(acme, chunk) or chunks.tier.is_storing(acme, chunk) for chunk in range(100))
    assert chunks.tier.loaded(loading) == loading
    assert chunks.tier.stored(storing) == storing
    assert acme.held == 0
    assert late.held == len(others)


def test_a_zone_that_leaves_leaves_nothing():
    chunks = Chunks(acme={}, late={})
    acme = chunks.active("acme")
    chunks.keep(acme, 5)
    storing = chunks.begin(acme, 2)
    assert len(chunks.reload(declare("late"))) == 5
    assert chunks.zone("acme") is None
    chunks.tier.request_finished(acme, 1.0)
    assert chunks.tier.stored(storing) == storing
    assert chunks.tier.free == 100
    assert "acme" not in chunks.tier.ledger.zones


def test_a_zone_that_stores_nothing_stores_nothing_here():
    chunks = Chunks(declare("acme", no_store=True), acme={"ttl_seconds": 5})
    assert chunks.begin(chunks.active("acme"), 5) == []


def test_before_any_zone_is_declared_the_whole_tier_is_everybodys():
    tier = Tier("cpu", 100, 1, UNBOUNDED)
    early = tier.zone_for(None, 0.0)
    tier.request_arrived(early, 0.0)
    assert tier.make_room(early, 200) == (100, [])
    tier.store(early, list(range(100)))
    assert tier.stored(range(100)) == []
    config = make_config(1, PoolConfig(namespace="n", name="p"), [declare("acme")])
    assert sorted(tier.apply(config, 1.0)) == list(range(100)), "it belongs to no zone from then on"
    assert tier.zone_for(None, 1.0) is None


def test_a_reset_gives_up_all_also_what_is_in_transfer():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    chunks.tier.load(acme, chunks.keep(acme, 5))
    chunks.begin(acme, 3)
    chunks.tier.reset()
    chunks.tier.check()
    assert (chunks.tier.free, acme.held) == (100, 0)


def test_all_that_is_stored_is_given_up_in_parts():
    chunks = Chunks(acme={}, late={})
    kept = [*chunks.keep(chunks.active("acme"), 5), *chunks.keep(chunks.active("late"), 2)]
    storing = chunks.begin(chunks.active("acme"), 1)
    given_up = list(chunks.tier.evict_all(2))
    assert [len(each) for each in given_up] == [2, 2, 1, 2]
    assert sorted(chain.from_iterable(given_up)) == sorted(kept), "what is in transfer is not"
    assert chunks.tier.stored(storing) == []
    chunks.tier.check()


def test_a_zone_that_is_not_offloaded_stores_nothing_and_keeps_nothing():
    chunks = Chunks(acme={"reserved": 20, "ttl_seconds": 5})
    acme = chunks.active("acme")
    stored, storing = chunks.keep(acme, 3), chunks.begin(acme, 2)
    assert sorted(chunks.reload(declare("acme", offload="Never"))) == stored
    assert chunks.tier.stored(storing) == storing
    assert chunks.begin(acme, 5) == []
    assert chunks.tier.counts_of(acme).writes_refused == 0, "it was not refused: it was not wanted"
    chunks.reload(declare("acme", offload="Prompt"))
    assert len(chunks.keep(acme, 5)) == 5


def test_a_tier_knows_its_own_shares_only():
    disk = TierShare(tier="disk", reserved="70%")
    tier = Tier("cpu", 100, 1, UNBOUNDED)
    zones = [declare("acme", tiers=(disk, TierShare(tier="cpu", reserved=30))), declare("gold", tiers=(disk,))]
    tier.apply(make_config(1, PoolConfig(namespace="n", name="p"), zones), 0.0)
    assert {zone.spec.tenant: zone.spec.quota.reserved for zone in tier.ledger.zones.values()} == {
        "acme": 30,
        "gold": 0,
    }


def test_bytes_are_rounded_to_chunks_so_that_what_fits_in_bytes_fits():
    tier = Tier("cpu", 10, 1000, UNBOUNDED)
    shares = {"acme": {"reserved": 4999, "limit": 5001}, "gold": {"reserved": "33%", "limit": "55%"}, "late": {}}
    zones = [declare(tenant, tiers=(TierShare(tier="cpu", **share),)) for tenant, share in shares.items()]
    tier.apply(make_config(1, PoolConfig(namespace="n", name="p"), zones), 0.0)
    quotas = [zone.spec.quota for zone in tier.ledger.zones.values()]
    assert [(quota.reserved, quota.limit) for quota in quotas] == [(4, 6), (3, 6), (0, 10)]


def test_who_comes_last_reserves_nothing_in_a_tier_that_is_too_small():
    chunks = Chunks(acme={"reserved": 60}, gold={"reserved": 60}, late={"reserved": 40})
    specs = [chunks.zone(tenant).spec for tenant in ("acme", "gold", "late")]
    assert [(spec.quota.reserved, spec.awaited) for spec in specs] == [(60, 0), (0, 60), (40, 0)]


def test_it_is_counted_why_chunks_are_not_stored():
    chunks = Chunks(bounds=TransferBounds(stores=90, loads=ALL), acme={"limit": 95}, gold={"reserved": 40})
    acme = chunks.active("acme")
    chunks.begin(acme, 95)
    assert chunks.tier.counts_of(acme).refused_writes == {"transfers": 5}
    gold = chunks.active("gold")
    chunks.begin(gold, 45)
    assert chunks.tier.counts_of(gold).refused_writes == {"reserved": 30, "room": 5}
    assert chunks.tier.counts_of(gold).writes_refused == 35


def test_what_is_stored_and_loaded_is_counted_by_zone():
    chunks = Chunks(acme={}, late={})
    acme, late = chunks.active("acme"), chunks.active("late")
    stored = chunks.keep(acme, 5)
    chunks.tier.stored(chunks.begin(acme, 2), success=False)
    chunks.tier.load(acme, stored[:3])
    assert (chunks.tier.counts_of(acme).written, chunks.tier.counts_of(acme).hits) == (5, 3)
    assert (chunks.tier.counts_of(late).written, chunks.tier.counts_of(late).hits) == (0, 0)


def test_counts_go_with_their_zone():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    chunks.tier.stored(chunks.begin(acme, 2), success=False)
    chunks.tier.request_finished(acme, 0.0)
    chunks.reload()
    chunks.tier.upkeep(1.0)
    assert not chunks.tier.counts


@pytest.mark.parametrize(
    ("offload", "tokens"), [("Prompt", (10, 4)), ("All", (13, 4)), ("Never", (0, 0))], ids=["prompt", "all", "never"]
)
def test_how_much_of_a_request_goes_on_is_as_its_zone_says(offload, tokens):
    chunks = Chunks(declare("acme", offload=offload))
    spec = chunks.zone("acme").spec
    assert (tokens_to_offload(spec, 10, 13), tokens_to_offload(spec, 10, 4)) == tokens


def test_a_share_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match=r"reserved \(30%\) must not exceed limit \(20%\)"):
        TierShare(tier="cpu", reserved="30%", limit="20%")


def test_a_store_of_nothing_leaves_no_trace_of_its_zone():
    chunks = Chunks(acme={})
    chunks.tier.store(chunks.active("acme"), [])
    assert not chunks.tier.storing


def test_chunks_of_an_engine_before_are_the_zones_again_those_used_last_first():
    chunks = Chunks(acme={"limit": 2, "ttl_seconds": 10.0}, gold={})
    acme = chunks.zone("acme")
    found, given_up = chunks.tier.find_again(acme, [5, 6, 7], [9.0, 8.0, 1.0])
    assert (found, given_up) == ([5, 6], [])
    assert chunks.tier.has_stored(acme, 5)
    assert chunks.tier.upkeep(1.0) == []
    assert chunks.tier.upkeep(2.5) == [5], "its age did not begin anew"
    assert chunks.tier.upkeep(9.5) == [6]
    chunks.tier.check()


def test_what_another_reserves_is_not_found_again():
    chunks = Chunks(acme={}, gold={"reserved": 40})
    chunks.active("gold")
    found, _ = chunks.tier.find_again(chunks.zone("acme"), range(100), [1.0] * 100)
    assert len(found) == 60


def test_a_chunk_that_is_lost_is_found_no_more():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    chunk, other = chunks.keep(acme, 2)
    assert chunks.tier.lose(acme, chunk) == [chunk]
    assert chunks.tier.lose(acme, chunk) == [], "no zone has it any more"
    assert not chunks.tier.has_stored(acme, chunk)
    assert chunks.tier.has_stored(acme, other)
    chunks.tier.check()


def test_a_chunk_that_is_lost_while_it_is_loaded_goes_after_its_last_load():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    (chunk,) = chunks.keep(acme, 1)
    chunks.tier.load(acme, [chunk])
    chunks.tier.load(acme, [chunk])
    assert chunks.tier.lose(acme, chunk) == []
    assert not chunks.tier.has_stored(acme, chunk)
    assert chunks.tier.loaded([chunk]) == []
    assert chunks.tier.loaded([chunk]) == [chunk]
    chunks.tier.check()
