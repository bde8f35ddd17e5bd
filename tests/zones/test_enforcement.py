"""What happens to zones while a config comes into force, zone by zone."""

import pytest

from tenantzone_contract.config import PoolConfig
from tenantzone_contract.config_text import make_config
from tenantzone_runtime.zones import configure
from tenantzone_runtime.zones.quota import Quota
from tests.zones.registered import GOLD, anybody, arrive, reserved
from tests.zones.zoo import Zoo, declare

CAPACITY = 100


@pytest.fixture
def zoo():
    return Zoo(CAPACITY)


class Coming:
    """A config that is coming into force: its changes are there and not made."""

    def __init__(self, zoo, *zones, **pool):
        self._enforcement = zoo.tenancy.enforcement
        self._plan = self._enforcement.plan(make_config(9, PoolConfig(namespace="n", name="p", **pool), zones))
        self._enforcement.begin(self._plan, zoo.now)
        self._changes = self._enforcement.changes(self._plan)

    def make(self, at_once=100):
        return self._enforcement.make(self._changes, at_once)

    def end(self):
        self._enforcement.end(self._plan)


def test_before_the_first_config_requests_need_no_zone_and_nothing_is_enforced(zoo):
    assert zoo.tenancy.is_open_to_anybody
    assert zoo.tenancy.pool is None
    assert arrive(zoo, "acme") is None
    zoo.zone("acme", cached=CAPACITY)
    assert zoo.upkeep(1.0) == [], "there is no watermark"


def test_no_more_is_promised_than_there_is(zoo):
    zoo.apply(declare("acme", reserved=30), declare("burst", reserved=10), **anybody(GOLD))
    for tenant in ("gold-1", "gold-2"):
        arrive(zoo, tenant)
    promised = [zoo.ledger.standings.promised]
    zones = (declare("acme", reserved=10), declare("burst", reserved=50), declare("new", reserved=40))
    coming = Coming(zoo, *zones, **anybody(GOLD))
    for _ in coming.make():
        promised.append(zoo.ledger.standings.promised)
        late = arrive(zoo, f"gold-late-{len(promised)}")
        assert late.spec.awaited == 30, "the config may need what is left"
    coming.end()
    assert max(promised) == CAPACITY
    assert set(reserved(zoo).values()) == {(0, 30)}
    assert len(promised) == 6


def test_who_comes_meanwhile_gets_its_reservation_at_the_end(zoo):
    coming = Coming(zoo, declare("acme", reserved=50), **anybody(GOLD))
    for _ in coming.make():
        arrive(zoo, "gold-1")
        arrive(zoo, "gold-2")
    assert reserved(zoo) == {"gold-1": (0, 30), "gold-2": (0, 30)}
    coming.end()
    assert reserved(zoo) == {"gold-1": (30, 0), "gold-2": (0, 30)}


def test_a_zone_that_is_forgotten_meanwhile_does_not_come_back(zoo):
    zoo.apply(**anybody(GOLD, forget_after=0.0))
    arrive(zoo, "gold-1")
    gone = arrive(zoo, "gold-2")
    coming = Coming(zoo, **anybody(GOLD, forget_after=5.0))
    gone.leaving = True
    configure.discard_if_gone(zoo.ledger, gone)
    assert [zone.spec.tenant for zone, _ in coming.make()] == ["gold-1"]
    assert set(zoo.ledger.zones) == {"gold-1"}


def test_a_tenant_that_comes_back_while_its_zone_leaves_keeps_what_is_left_of_its_cache(zoo):
    zoo.apply(declare("acme"), **anybody(GOLD))
    acme = zoo.ledger.zones["acme"]
    zoo.hold(acme, cached=5)
    changes = Coming(zoo, **anybody(GOLD)).make(at_once=2)
    _, evicted = next(changes)
    assert (acme.leaving, len(evicted)) == (True, 2)
    assert arrive(zoo, "acme") is acme
    assert list(changes) == []
    assert (acme.leaving, len(acme.cached)) == (False, 3)


def test_what_a_tenant_that_comes_back_caches_beyond_a_lower_limit_goes_with_the_next_parts(zoo):
    zoo.apply(declare("acme"), **anybody(GOLD))
    acme = zoo.ledger.zones["acme"]
    zoo.hold(acme, cached=10)
    changes = Coming(zoo, **anybody(GOLD, limit=4)).make(at_once=2)
    next(changes)
    assert arrive(zoo, "acme") is acme
    assert (acme.spec.quota.limit, len(acme.cached)) == (4, 8), "whoever registers it can return no blocks"
    assert zoo.settle_evictions(list(changes)) == [("acme", 2), ("acme", 2)]
    assert (len(acme.cached), acme.counters.evicted) == (4, {"removed": 2, "limit": 4})
    zoo.check()


def test_a_zone_that_left_before_and_is_registered_meanwhile_stays(zoo):
    zoo.apply(declare("other"), declare("acme"))
    acme = zoo.ledger.zones["acme"]
    zoo.tenancy.request_arrived(acme, zoo.now)
    zoo.apply(declare("other"))
    assert acme.leaving
    coming = Coming(zoo, **anybody(GOLD))
    assert arrive(zoo, "acme") is acme
    assert [zone.spec.tenant for zone, _ in coming.make()] == ["other"]
    assert (acme.leaving, acme.spec.auto_registered) == (False, True)


def test_a_zone_that_is_registered_again_is_forgotten_in_its_time(zoo):
    """Its tenant comes back while the zone's cache goes, with a request that is refused."""
    zoo.apply(declare("acme"), **anybody(GOLD, forget_after=5.0))
    acme = zoo.ledger.zones["acme"]
    zoo.hold(acme, cached=5)
    zoo.upkeep(1.0)
    assert acme.timer is None
    changes = Coming(zoo, **anybody(GOLD, forget_after=5.0)).make(at_once=2)
    zoo.settle_evictions([next(changes)])
    assert arrive(zoo, "acme") is acme
    zoo.settle_evictions(list(changes))
    zoo.upkeep(zoo.now + 5.0)
    assert "acme" not in zoo.ledger.zones


def test_a_tenant_whose_turn_has_not_come_has_a_zone_within_its_limit_that_reserves_nothing_yet(zoo):
    zoo.apply(declare("old", reserved=80))
    coming = Coming(zoo, declare("acme", reserved=60, limit=70), declare("burst", reserved=40))
    assert arrive(zoo, "acme").spec.quota == Quota(reserved=0, limit=70, lendable=0)
    assert arrive(zoo, "stranger") is None
    for _ in coming.make():
        assert zoo.ledger.standings.promised <= CAPACITY
    coming.end()
    assert zoo.ledger.zones["acme"].spec.quota == Quota(reserved=60, limit=70, lendable=60)
    assert set(zoo.ledger.zones) == {"acme", "burst"}


def looked_at(coming):
    return [zone.spec.tenant for zone, _ in coming.make()]


def test_a_config_looks_at_zones_that_it_changes_and_at_all_if_the_one_before_did_not_end(zoo):
    acme, burst = declare("acme", reserved=10), declare("burst", reserved=20)
    zoo.apply(acme, burst)
    assert looked_at(Coming(zoo, acme, declare("burst", reserved=20, weight=2))) == ["burst"]
    coming = Coming(zoo, acme, burst)
    assert looked_at(coming) == ["acme", "burst"]
    coming.end()
    assert looked_at(Coming(zoo, acme, burst)) == []


def test_zones_that_leave_come_first_and_those_that_are_promised_more_last(zoo):
    zoo.apply(
        declare("grows", reserved=10), declare("leaves", reserved=5), declare("shrinks", reserved=50), declare("same")
    )
    zones = [declare("new", reserved=30), declare("grows", reserved=50), declare("same", weight=2)]
    coming = Coming(zoo, *zones, declare("shrinks", reserved=20))
    order = looked_at(coming)
    assert (order[0], set(order[1:3]), set(order[3:])) == ("leaves", {"same", "shrinks"}, {"grows", "new"})


def parts(zoo, coming):
    """How many blocks of whom go in each part."""
    return [(zone.spec.tenant, len(evicted)) for zone, evicted in returned(zoo, coming.make(at_once=4))]


def returned(zoo, changes):
    """An engine takes the blocks back after each part."""
    for zone, evicted in changes:
        yield zone, evicted
        zoo.settle_evictions([(zone, evicted)])


@pytest.mark.parametrize("in_use", [0, 3])
def test_a_large_cache_of_a_zone_that_leaves_goes_in_parts(zoo, in_use):
    zoo.apply(declare("acme", reserved=20))
    acme = zoo.ledger.zones["acme"]
    zoo.hold(acme, in_use=in_use, cached=10)
    assert parts(zoo, Coming(zoo)) == [("acme", 4), ("acme", 4), ("acme", 2)]
    assert acme.counters.evictions == {("removed", "none"): 10}
    assert ("acme" in zoo.ledger.zones) == bool(in_use)
    zoo.check()


def test_what_a_zone_caches_beyond_a_lower_limit_goes_in_parts_the_oldest_blocks_first(zoo):
    zoo.apply(declare("acme"))
    acme = zoo.ledger.zones["acme"]
    blocks = zoo.hold(acme, in_use=3, cached=20)
    assert parts(zoo, Coming(zoo, declare("acme", limit=13))) == [("acme", 4), ("acme", 4), ("acme", 2)]
    assert list(acme.cached) == blocks[13:]
    assert acme.counters.evictions == {("limit", "none"): 10}
    zoo.check()


def test_a_zone_that_is_not_quiet_is_looked_at_when_its_new_window_ends_and_a_quiet_one_now(zoo):
    zoo.apply(declare("acme", after=60.0), declare("burst", after=60.0))
    acme, burst = zoo.ledger.zones.values()
    zoo.upkeep(90.0)
    zoo.tenancy.request_arrived(acme, 90.0)
    zoo.tenancy.request_finished(acme, 95.0)
    assert (acme.quiet, burst.quiet) == (False, True)
    zoo.apply(declare("acme", after=30.0), declare("burst", after=30.0), now=100.0)
    assert (acme.timer, burst.timer) == (125.0, 100.0)
