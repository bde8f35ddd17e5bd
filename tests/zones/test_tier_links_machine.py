"""Random lives of a tier whose chunks are useful together only: each belongs to a hit, or a request counts on it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.zones.core import declare
from tests.zones.test_tier import Chunks

TENANTS = ("acme", "late")
BOUNDS = TransferBounds(stores=20, loads=20)


class LinkedLives(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.chunks = Chunks(bounds=BOUNDS, acme={"reserved": 30}, late={"limit": 60, "ttl_seconds": 20.0})
        self.tier = self.chunks.tier
        self.zones = {tenant: self.chunks.active(tenant) for tenant in TENANTS}
        self.now = 0.0
        self.stores = []
        self.loads = []
        self.loose = {tenant: [] for tenant in TENANTS}
        """Chunks stored by a request that has not ended."""
        self.others = {tenant: set() for tenant in TENANTS}
        """Chunks that another request has found and counts on."""
        self.tier.is_counted_on = lambda chunk_id: any(
            chunk_id in counted for each in (self.loose, self.others) for counted in each.values()
        )

    def given_up(self, chunk_ids):
        assert len(set(chunk_ids)) == len(chunk_ids)
        assert all(self.tier.ledger.owner[chunk_id] is None for chunk_id in chunk_ids)
        for tenant in TENANTS:
            self.loose[tenant] = [chunk_id for chunk_id in self.loose[tenant] if chunk_id not in chunk_ids]
            self.others[tenant].difference_update(chunk_ids)

    @rule(tenant=st.sampled_from(TENANTS), count=st.integers(1, 25))
    def store(self, tenant, count):
        zone = self.zones[tenant]
        granted, given_up = self.tier.make_room(zone, count)
        self.given_up(given_up)
        free = [chunk_id for chunk_id, owner in enumerate(self.tier.ledger.owner) if owner is None]
        self.tier.store(zone, free[:granted])
        self.loose[tenant] += free[:granted]
        self.stores.append(free[:granted])

    @rule(data=st.data(), success=st.sampled_from([True, True, True, False]))
    def store_ends(self, data, success):
        if self.stores:
            self.given_up(
                self.tier.stored(self.stores.pop(data.draw(st.integers(0, len(self.stores) - 1))), success=success)
            )

    @rule(data=st.data(), tenant=st.sampled_from(TENANTS))
    def prompt_ends(self, data, tenant):
        """Ends a request whose prompt may begin like that of another request."""
        zone, loose = self.zones[tenant], self.loose[tenant]
        held = [chunk_id for chunk_id in self.tier.links if self.tier.holds(zone, chunk_id)]
        common = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
        own = data.draw(st.lists(st.sampled_from(loose), unique=True)) if loose else []
        self.loose[tenant] = []
        unowned = [chunk_id for chunk_id in loose if chunk_id not in self.others[tenant]]
        self.given_up(self.tier.link(zone, unowned, [[*common, *own]]))

    @rule(data=st.data(), tenant=st.sampled_from(TENANTS))
    def another_finds_some(self, data, tenant):
        there = [chunk_id for chunk_id in range(100) if self.tier.holds(self.zones[tenant], chunk_id)]
        if there:
            self.others[tenant] |= data.draw(st.sets(st.sampled_from(there)))

    @rule(tenant=st.sampled_from(TENANTS))
    def another_goes_away(self, tenant):
        counted, self.others[tenant] = self.others[tenant], set()
        unowned = [chunk_id for chunk_id in counted if chunk_id not in self.loose[tenant]]
        self.given_up(self.tier.link(self.zones[tenant], unowned, []))

    @rule(data=st.data(), tenant=st.sampled_from(TENANTS))
    def load(self, data, tenant):
        zone = self.zones[tenant]
        there = [chunk_id for chunk_id in range(100) if self.tier.has_stored(zone, chunk_id)][
            : self.tier.loadable(zone)
        ]
        if there:
            self.loads.append(data.draw(st.lists(st.sampled_from(there), unique=True, min_size=1)))
            self.tier.load(zone, self.loads[-1])

    @rule(data=st.data())
    def load_ends(self, data):
        if self.loads:
            self.given_up(self.tier.loaded(self.loads.pop(data.draw(st.integers(0, len(self.loads) - 1)))))

    @rule(data=st.data(), tenant=st.sampled_from(TENANTS))
    def use(self, data, tenant):
        cached = list(self.zones[tenant].cached)
        if cached:
            self.tier.use(self.zones[tenant], data.draw(st.lists(st.sampled_from(cached), unique=True)))

    @rule(tenant=st.sampled_from(TENANTS), chunk_id=st.integers(0, 99))
    def lose(self, tenant, chunk_id):
        self.given_up(self.tier.lose(self.zones[tenant], chunk_id))

    @rule(seconds=st.sampled_from([1.0, 15.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.given_up(self.tier.upkeep(self.now))

    @rule(limit=st.sampled_from([10, 40, 100]))
    def limit_changes(self, limit):
        self.chunks.shares["late"] = TierShare(tier="cpu", limit=limit, ttl_seconds=20.0)
        self.given_up(self.chunks.reload(*map(declare, TENANTS), now=self.now))

    @invariant()
    def what_is_there_is_of_a_hit_or_counted_on(self):
        if not hasattr(self, "tier"):
            return
        self.tier.check()
        for zone in self.zones.values():
            useless = [chunk_id for chunk_id in zone.cached if chunk_id not in self.tier.links]
            assert all(map(self.tier.is_counted_on, useless)), "it has outlived its use"


TestLinkedLives = LinkedLives.TestCase
TestLinkedLives.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
