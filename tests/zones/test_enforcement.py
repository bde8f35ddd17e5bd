"""What happens to zones while a config takes effect, zone by zone."""

import pytest

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.model.quota import Quota
from tests.zones.core import Core, declare
from tests.zones.registered import GOLD, anybody, arrive, reserved

CAPACITY = 100


@pytest.fixture
def core():
    return Core(CAPACITY)


class Coming:
    """A config that is taking effect: its changes are planned but not yet made."""

    def __init__(self, core, *zones, **pool):
        self._enforcement = core.tenancy.enforcement
        self._plan = self._enforcement.plan(make_config(9, PoolConfig(namespace="n", name="p", **pool), zones))
        self._enforcement.begin(self._plan, core.now)
        self._changes = self._enforcement.changes(self._plan)

    def make(self, at_once=100):
        return self._enforcement.make(self._changes, at_once)

    def end(self):
        self._enforcement.end(self._plan)


def test_before_the_first_config_requests_need_no_zone_and_nothing_is_enforced(core):
    assert core.tenancy.is_open_to_anybody
    assert core.tenancy.pool is None
    assert arrive(core, "acme") is None
    core.zone("acme", cached=CAPACITY)
    assert core.upkeep(1.0) == [], "there is no watermark"


def test_no_more_is_promised_than_there_is(core):
    core.apply(declare("acme", reserved=30), declare("burst", reserved=10), **anybody(GOLD))
    for tenant in ("gold-1", "gold-2"):
        arrive(core, tenant)
    promised = [core.ledger.totals.promised]
    zones = (declare("acme", reserved=10), declare("burst", reserved=50), declare("new", reserved=40))
    coming = Coming(core, *zones, **anybody(GOLD))
    for _ in coming.make():
        promised.append(core.ledger.totals.promised)
        late = arrive(core, f"gold-late-{len(promised)}")
        assert late.spec.awaited == 30, "the config may need what is left"
    coming.end()
    assert max(promised) == CAPACITY
    assert set(reserved(core).values()) == {(0, 30)}
    assert len(promised) == 6


def test_who_comes_meanwhile_gets_its_reservation_at_the_end(core):
    coming = Coming(core, declare("acme", reserved=50), **anybody(GOLD))
    for _ in coming.make():
        arrive(core, "gold-1")
        arrive(core, "gold-2")
    assert reserved(core) == {"gold-1": (0, 30), "gold-2": (0, 30)}
    coming.end()
    assert reserved(core) == {"gold-1": (30, 0), "gold-2": (0, 30)}


def test_a_zone_that_is_forgotten_meanwhile_does_not_come_back(core):
    core.apply(**anybody(GOLD, forget_after=0.0))
    arrive(core, "gold-1")
    gone = arrive(core, "gold-2")
    coming = Coming(core, **anybody(GOLD, forget_after=5.0))
    gone.leaving = True
    configure.discard_if_gone(core.ledger, gone)
    assert [zone.spec.tenant for zone, _ in coming.make()] == ["gold-1"]
    assert set(core.ledger.zones) == {"gold-1"}


def test_a_tenant_that_comes_back_while_its_zone_leaves_keeps_what_is_left_of_its_cache(core):
    core.apply(declare("acme"), **anybody(GOLD))
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=5)
    changes = Coming(core, **anybody(GOLD)).make(at_once=2)
    _, evicted = next(changes)
    assert (acme.leaving, len(evicted)) == (True, 2)
    assert arrive(core, "acme") is acme
    assert list(changes) == []
    assert (acme.leaving, len(acme.cached)) == (False, 3)


def test_what_a_tenant_that_comes_back_caches_beyond_a_lower_limit_goes_with_the_next_parts(core):
    core.apply(declare("acme"), **anybody(GOLD))
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=10)
    changes = Coming(core, **anybody(GOLD, limit=4)).make(at_once=2)
    next(changes)
    assert arrive(core, "acme") is acme
    assert (acme.spec.quota.limit, len(acme.cached)) == (4, 8), "the caller that registers it can return no blocks"
    assert core.settle_evictions(list(changes)) == [("acme", 2), ("acme", 2)]
    assert (len(acme.cached), acme.counters.evicted) == (4, {"removed": 2, "limit": 4})
    core.check()


def test_a_zone_that_left_before_and_is_registered_meanwhile_stays(core):
    core.apply(declare("other"), declare("acme"))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, core.now)
    core.apply(declare("other"))
    assert acme.leaving
    coming = Coming(core, **anybody(GOLD))
    assert arrive(core, "acme") is acme
    assert [zone.spec.tenant for zone, _ in coming.make()] == ["other"]
    assert (acme.leaving, acme.spec.auto_registered) == (False, True)


def test_a_zone_that_is_registered_again_is_forgotten_in_its_time(core):
    """Its tenant comes back, with a request that is refused, while the zone's cache is being evicted."""
    core.apply(declare("acme"), **anybody(GOLD, forget_after=5.0))
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=5)
    core.upkeep(1.0)
    assert core.tenancy._timers.of(acme) is None
    changes = Coming(core, **anybody(GOLD, forget_after=5.0)).make(at_once=2)
    core.settle_evictions([next(changes)])
    assert arrive(core, "acme") is acme
    core.settle_evictions(list(changes))
    core.upkeep(core.now + 5.0)
    assert "acme" not in core.ledger.zones


def test_a_tenant_whose_turn_has_not_come_has_a_zone_within_its_limit_that_reserves_nothing_yet(core):
    core.apply(declare("old", reserved=80))
    coming = Coming(core, declare("acme", reserved=60, limit=70), declare("burst", reserved=40))
    assert arrive(core, "acme").spec.quota == Quota(reserved=0, limit=70, lendable=0)
    assert arrive(core, "stranger") is None
    for _ in coming.make():
        assert core.ledger.totals.promised <= CAPACITY
    coming.end()
    assert core.ledger.zones["acme"].spec.quota == Quota(reserved=60, limit=70, lendable=60)
    assert set(core.ledger.zones) == {"acme", "burst"}


def looked_at(coming):
    return [zone.spec.tenant for zone, _ in coming.make()]


def test_a_config_looks_at_zones_that_it_changes_and_at_all_if_the_one_before_did_not_end(core):
    acme, burst = declare("acme", reserved=10), declare("burst", reserved=20)
    core.apply(acme, burst)
    assert looked_at(Coming(core, acme, declare("burst", reserved=20, weight=2))) == ["burst"]
    coming = Coming(core, acme, burst)
    assert looked_at(coming) == ["acme", "burst"]
    coming.end()
    assert looked_at(Coming(core, acme, burst)) == []


def test_zones_that_leave_come_first_and_those_that_are_promised_more_last(core):
    core.apply(
        declare("grows", reserved=10), declare("leaves", reserved=5), declare("shrinks", reserved=50), declare("same")
    )
    zones = [declare("new", reserved=30), declare("grows", reserved=50), declare("same", weight=2)]
    coming = Coming(core, *zones, declare("shrinks", reserved=20))
    order = looked_at(coming)
    assert (order[0], set(order[1:3]), set(order[3:])) == ("leaves", {"same", "shrinks"}, {"grows", "new"})


def parts(core, coming):
    """The number of blocks that each zone loses in each part."""
    return [(zone.spec.tenant, len(evicted)) for zone, evicted in returned(core, coming.make(at_once=4))]


def returned(core, changes):
    """An engine takes the blocks back after each part."""
    for zone, evicted in changes:
        yield zone, evicted
        core.settle_evictions([(zone, evicted)])


@pytest.mark.parametrize("in_use", [0, 3])
def test_a_large_cache_of_a_zone_that_leaves_goes_in_parts(core, in_use):
    core.apply(declare("acme", reserved=20))
    acme = core.ledger.zones["acme"]
    core.hold(acme, in_use=in_use, cached=10)
    assert parts(core, Coming(core)) == [("acme", 4), ("acme", 4), ("acme", 2)]
    assert acme.counters.evictions == {("removed", "none"): 10}
    assert ("acme" in core.ledger.zones) == bool(in_use)
    core.check()


def test_what_a_zone_caches_beyond_a_lower_limit_goes_in_parts_the_oldest_blocks_first(core):
    core.apply(declare("acme"))
    acme = core.ledger.zones["acme"]
    blocks = core.hold(acme, in_use=3, cached=20)
    assert parts(core, Coming(core, declare("acme", limit=13))) == [("acme", 4), ("acme", 4), ("acme", 2)]
    assert list(acme.cached) == blocks[13:]
    assert acme.counters.evictions == {("limit", "none"): 10}
    core.check()


def test_a_zone_that_is_not_quiet_is_looked_at_when_its_new_window_ends_and_a_quiet_one_now(core):
    core.apply(declare("acme", after=60.0), declare("burst", after=60.0))
    acme, burst = core.ledger.zones.values()
    core.upkeep(90.0)
    core.tenancy.request_arrived(acme, 90.0)
    core.tenancy.request_finished(acme, 95.0)
    assert (acme.quiet, burst.quiet) == (False, True)
    core.apply(declare("acme", after=30.0), declare("burst", after=30.0), now=100.0)
    assert [core.tenancy._timers.of(zone) for zone in (acme, burst)] == [125.0, 100.0]
