"""Random lives of a tier: after each step the promises to each zone hold, and no chunk in transfer is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tenantzone_contract.zone_config.config import PoolConfig, Watermarks
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds
from tests.reservations import Reservations
from tests.zones.core import declare

CHUNKS = 24
TENANTS = ("acme", "gold", "late")
BOUNDS = TransferBounds(stores=10, loads=6)


@st.composite
def shares(draw):
    left, drawn = CHUNKS, {}
    for tenant in TENANTS:
        reserved = min(left, draw(st.sampled_from([0, 5, 8, 12])))
        left -= reserved
        limit = draw(st.none() | st.integers(max(1, reserved), CHUNKS))
        drawn[tenant] = TierShare(
            tier="cpu", reserved=reserved, limit=limit, ttl_seconds=draw(st.none() | st.sampled_from([3.0, 20.0]))
        )
    return drawn


@st.composite
def zone_configs(draw):
    return [
        declare(
            tenant,
            priority=draw(st.integers(0, 1)),
            weight=draw(st.integers(1, 3)),
            lendable=draw(st.sampled_from(["100%", "50%", "0%"])),
            borrowers=draw(st.sampled_from(["SameOrHigherPriority", "AnyPriority"])),
            max_loan=draw(st.sampled_from([None, 5.0])),
            after=draw(st.sampled_from([2.0, 30.0])),
            evict_after=draw(st.sampled_from([None, 50.0])),
            no_store=False,
            offload=draw(st.sampled_from(["All", "All", "Prompt", "Never"])),
            purge=draw(st.sampled_from(["", "p1", "p2"])),
        )
        for tenant in draw(st.lists(st.sampled_from(TENANTS), unique=True, min_size=2))
    ]


class TierLives(RuleBasedStateMachine):
    @initialize(shares=shares(), zones=zone_configs())
    def begin(self, shares, zones):
        self.tier = Tier("cpu", CHUNKS, 1, BOUNDS)
        self.shares = shares
        self.now = 0.0
        self.generation = 0
        self.requests = []
        self.stores = []
        self.loads = []
        self.reload(zones)

    @rule(zones=zone_configs(), high=st.sampled_from([0.0, 0.0, 0.5, 1.0]))
    def reload(self, zones, high=0.0):
        self.generation += 1
        zones = [zone.model_copy(update={"tiers": (self.shares[zone.tenant],)}) for zone in zones]
        pool = PoolConfig(namespace="n", name="p", watermarks=Watermarks(low=high, high=high))
        config = make_config(self.generation, pool, zones)
        self.given_up(self.tier.apply(config, self.now))

    @rule(tenant=st.sampled_from(TENANTS))
    def request_arrives(self, tenant):
        zone = self.tier.zone_for(tenant, self.now)
        if zone is not None:
            self.tier.request_arrived(zone, self.now)
            self.requests.append(zone)

    @rule(data=st.data())
    def request_ends(self, data):
        if self.requests:
            zone = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
            self.tier.request_finished(zone, self.now)

    @rule(data=st.data(), count=st.integers(1, 2 * CHUNKS))
    def store(self, data, count):
        if not self.requests:
            return
        self.store_for(data.draw(st.sampled_from(self.requests)), count)

    def store_for(self, zone, count):
        """Begin to store up to ``count`` chunks of a zone; returns those for which there was room."""
        tier, zones = self.tier, list(self.tier.ledger.zones.values())
        held, kept = zone.held, Reservations(zones)
        free = tier.free
        others = [each for each in zones if each is not zone]
        obtainable = free + sum(max(0, min(len(each.cached), each.surplus)) for each in others)
        room = min(count, BOUNDS.stores - tier.storing[zone])
        granted, given_up = tier.make_room(zone, count)
        self.given_up(given_up)
        assert 0 <= granted <= max(0, room)
        assert tier.free >= granted
        assert len(given_up) == tier.free - free
        if zone.spec.retention.no_store:
            assert not granted
        elif not zone.leaving and held + room <= zone.spec.quota.reserved:
            assert granted >= min(room, obtainable), "what is reserved is had at once, but for what others transfer"
        chunk_ids = [chunk for chunk, owner in enumerate(tier.ledger.owner) if owner is None][:granted]
        tier.store(zone, chunk_ids)
        kept.check_kept()
        if granted:
            assert zone.held <= zone.spec.quota.limit
            self.stores.append((zone, chunk_ids))
        return chunk_ids

    @rule(tenant=st.sampled_from(TENANTS), seconds=st.sampled_from([0.5, 2.0, 60.0]))
    def a_request_stores_what_it_may_and_ends(self, tenant, seconds):
        """The life of most requests. Then time passes, after which its zone may be quiet."""
        zone = self.tier.zone_for(tenant, self.now)
        if zone is None:
            return
        self.tier.request_arrived(zone, self.now)
        for _ in range(CHUNKS // BOUNDS.stores + 1):
            if self.store_for(zone, BOUNDS.stores):
                self.given_up(self.tier.stored(self.stores.pop()[1]))
        self.tier.request_finished(zone, self.now)
        self.time_passes(seconds)

    @rule(first=st.sampled_from(TENANTS), then=st.sampled_from(TENANTS))
    def one_falls_silent_and_another_stores(self, first, then):
        self.a_request_stores_what_it_may_and_ends(first, 60.0)
        self.a_request_stores_what_it_may_and_ends(then, 0.5)

    @rule(data=st.data(), success=st.booleans())
    def store_ends(self, data, success):
        if self.stores:
            _, chunk_ids = self.stores.pop(data.draw(st.integers(0, len(self.stores) - 1)))
            given_up = self.tier.stored(chunk_ids, success=success)
            self.given_up(given_up)
            assert success or set(chunk_ids) <= set(given_up)

    @rule(data=st.data(), count=st.integers(1, 8))
    def load(self, data, count):
        if not self.requests:
            return
        zone = data.draw(st.sampled_from(self.requests))
        mine = [chunk for chunk in range(CHUNKS) if self.tier.has_stored(zone, chunk)]
        chunk_ids = mine[: min(count, self.tier.loadable(zone))]
        if chunk_ids:
            self.tier.load(zone, chunk_ids)
            self.loads.append((zone, chunk_ids))

    @rule(data=st.data())
    def load_ends(self, data):
        if self.loads:
            _, chunk_ids = self.loads.pop(data.draw(st.integers(0, len(self.loads) - 1)))
            self.given_up(self.tier.loaded(chunk_ids))

    @rule(data=st.data())
    def use(self, data):
        if self.requests:
            zone = data.draw(st.sampled_from(self.requests))
            self.tier.use(zone, data.draw(st.permutations(range(CHUNKS)))[:5])

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0, 60.0]))
    def time_passes(self, seconds):
        self.now += seconds
        kept = Reservations(self.tier.ledger.zones.values())
        self.given_up(self.tier.upkeep(self.now))
        kept.check_kept()

    @rule()
    def reset(self):
        self.tier.reset()
        self.stores, self.loads = [], []
        assert self.tier.free == CHUNKS

    @invariant()
    def is_consistent(self):
        if hasattr(self, "tier"):
            self.tier.check()

    @invariant()
    def nothing_in_transfer_is_given_up(self):
        for zone, chunk_ids in [*getattr(self, "stores", ()), *getattr(self, "loads", ())]:
            assert all(self.tier.ledger.owner[chunk] is zone for chunk in chunk_ids)

    @invariant()
    def transfers_are_bounded(self):
        if hasattr(self, "tier"):
            assert all(count <= BOUNDS.stores for count in self.tier.storing.values())
            assert all(count <= BOUNDS.loads for count in self.tier.loading.values())

    @invariant()
    def no_zone_holds_more_than_its_limit_except_for_transfers(self):
        if hasattr(self, "tier"):
            for zone in self.tier.ledger.zones.values():
                assert zone.held <= max(zone.spec.quota.limit, zone.in_use)

    def given_up(self, chunk_ids):
        assert len(set(chunk_ids)) == len(chunk_ids)
        assert all(self.tier.ledger.owner[chunk] is None for chunk in chunk_ids), "what is given up is free"

    def teardown(self):
        """When all transfers have ended and all zones have left, no zone holds anything."""
        if not hasattr(self, "tier"):
            return
        for _, chunk_ids in self.loads:
            self.tier.loaded(chunk_ids)
        for _, chunk_ids in self.stores:
            self.tier.stored(chunk_ids)
        for zone in self.requests:
            self.tier.request_finished(zone, self.now)
        self.requests, self.stores, self.loads = [], [], []
        self.reload([])
        assert self.tier.free == CHUNKS
        assert not self.tier.ledger.zones
        assert not self.tier.storing
        assert not self.tier.loading


TestTierLives = TierLives.TestCase
TestTierLives.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
