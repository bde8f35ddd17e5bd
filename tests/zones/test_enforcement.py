"""What happens to zones while a config comes into force, zone by zone."""

import pytest

from tenantzone_contract.config import PoolConfig, make_config
from tenantzone_runtime.zones import configure
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


def test_a_tenant_whose_turn_has_not_come_has_a_zone_that_reserves_nothing_yet(zoo):
    zoo.apply(declare("old", reserved=80))
    coming = Coming(zoo, declare("acme", reserved=60), declare("burst", reserved=40))
    assert arrive(zoo, "acme").spec.quota.reserved == 0
    assert arrive(zoo, "stranger") is None
    for _ in coming.make():
        assert zoo.ledger.standings.promised <= CAPACITY
    coming.end()
    assert zoo.ledger.zones["acme"].spec.quota.reserved == 60
    assert set(zoo.ledger.zones) == {"acme", "burst"}
