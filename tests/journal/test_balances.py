"""Blocks granted to zones and released add up to what the zones hold, in the journal as in the engine."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.config import ConfigError
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.journal.record import BEFORE_FIRST, Started, encode
from tenantzone_runtime.zones.blocks.eviction import make_room
from tests.journal.auditor import Auditor
from tests.journal.journals import put, records
from tests.zones.core import Core, declare, releasing

CAPACITY = 40
TENANTS = ("acme", "burst", "gold-1", "guest")

tenants = st.sampled_from(TENANTS)
amounts = st.integers(0, 15)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("take"), tenants, amounts),
        st.tuples(st.just("take"), tenants, amounts),
        st.tuples(st.just("preempt"), tenants, amounts, amounts),
        st.tuples(st.just("end"), tenants, amounts),
        st.tuples(st.just("reset"), tenants),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 5.0, 10.0])),
        st.tuples(st.just("reload"), st.lists(tenants, unique=True), st.integers(0, 20), st.integers(1, CAPACITY)),
        st.tuples(st.just("collect")),
    ),
    max_size=60,
)


class Engine:
    """Zones that take and release blocks, and a journal of it."""

    def __init__(self, folder):
        self.folder = folder
        self.core = Core(CAPACITY)
        self.link = BEFORE_FIRST
        self.lines = []
        self.auditor = Auditor()
        self._write(Started("0.32.0", CAPACITY, 16))
        self.reload(["acme"], 10, 30)

    def take(self, tenant, count):
        """A request arrives and takes what its zone may take."""
        core = self.core
        zone = core.tenancy.zone_for(tenant, core.now)
        if zone is None:
            return
        core.tenancy.request_arrived(zone, core.now)
        count = min(count, core.takeable(zone))
        core.settle_evictions(make_room(core.ledger, zone, count, core.free))
        core.take(zone, count)

    def preempt(self, tenant, kept, dropped):
        """Releases blocks in use; some stay cached."""
        zone = self.core.ledger.zones.get(tenant)
        if zone is not None:
            kept = 0 if zone.leaving else min(kept, zone.in_use)
            self.core.release(zone, kept=kept, dropped=min(dropped, zone.in_use - kept))

    def end(self, tenant, kept):
        """Ends all requests of a zone."""
        self.preempt(tenant, kept, CAPACITY)
        zone = self.core.ledger.zones.get(tenant)
        for _ in range(0 if zone is None else zone.requests):
            self.core.tenancy.request_finished(zone, self.core.now)

    def reset(self, tenant):
        """Forgets one cached block."""
        zone = self.core.ledger.zones.get(tenant)
        if zone is not None and len(zone.cached):
            self.core.ledger.evict_block(zone, next(iter(zone.cached)), "reset")

    def wait(self, seconds):
        self.core.upkeep(self.core.now + seconds)

    def reload(self, declared, reserved, limit):
        idle = Idle(after_seconds=1.0, forget_after_seconds=15.0, release=releasing((50, 5.0)))
        level = TenantLevel(name="gold", tenants=("gold-*",), reserved=reserved)
        unknown = UnknownTenants(
            mode="AutoRegister", template=UnknownTenantTemplate(limit=limit, idle=idle), levels=(level,)
        )
        zones = [declare(tenant, reserved=reserved, after=1.0, evict_after=10.0) for tenant in declared]
        try:
            self.core.apply(*zones, unknown_tenants=unknown)
        except ConfigError:
            assert len(declared) * reserved > CAPACITY

    def collect(self):
        """Writes what an engine writes about once a second, and lets an auditor read it."""
        for event in self.core.ledger.trail.collect():
            self._write(event)
        self.auditor.read(records(put(self.folder, self.lines)))

    def _write(self, event):
        line, self.link = encode(event, self.link, engine="engine-0@x", at=self.core.now, offset=0.0)
        self.lines.append(line)


@given(histories)
def test_an_auditor_finds_by_the_journal_what_each_zone_holds(tmp_path_factory, history):
    engine = Engine(tmp_path_factory.mktemp("journal"))
    for what, *arguments in [*history, ("collect",)]:
        getattr(engine, what)(*arguments)
        if what == "collect":
            zones = engine.core.ledger.zones.values()
            assert engine.auditor.held == {zone.spec.tenant: zone.held for zone in zones if zone.held}
