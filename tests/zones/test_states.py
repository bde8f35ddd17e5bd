"""Active, Idle, Evicted: what requests do to a zone. What time does is in test_timers."""

import pytest

from tests.zones.zoo import Zoo


@pytest.fixture
def zoo():
    return Zoo()


def test_a_new_zone_is_idle_and_lends_nothing_yet(zoo):
    acme = zoo.zone("acme", reserved=40)
    assert (acme.state, acme.quiet) == ("Idle", False)


def test_a_zone_is_active_from_its_first_request_to_the_end_of_its_last(zoo):
    acme = zoo.zone("acme")
    zoo.tenancy.request_arrived(acme, 1.0)
    zoo.tenancy.request_arrived(acme, 2.0)
    zoo.tenancy.request_finished(acme, 3.0)
    assert (acme.state, acme.last_active) == ("Active", 3.0)
    zoo.tenancy.request_finished(acme, 4.0)
    assert (acme.state, acme.last_active) == ("Idle", 4.0)


def test_a_request_ends_the_quiet_at_once(zoo):
    acme = zoo.zone("acme", reserved=40, quiet=True)
    burst = zoo.zone("burst")
    assert zoo.takeable(burst) == 100
    zoo.tenancy.request_arrived(acme, 1.0)
    assert not acme.quiet
    assert zoo.takeable(burst) == 60


def test_more_requests_cannot_end_than_came(zoo):
    acme = zoo.zone("acme")
    with pytest.raises(AssertionError, match="zone acme: more requests ended than came"):
        zoo.tenancy.request_finished(acme, 1.0)


def test_an_idle_zone_whose_last_block_goes_is_evicted(zoo):
    acme = zoo.zone("acme", cached=10)
    zoo.settle_evictions([(acme, zoo.ledger.evict(acme, 9, "quiet"))])
    assert acme.state == "Idle"
    zoo.settle_evictions([(acme, zoo.ledger.evict(acme, 1, "quiet"))])
    assert acme.state == "Evicted"


def test_an_active_zone_is_not_evicted_however_little_it_holds(zoo):
    acme = zoo.zone("acme", cached=10)
    zoo.tenancy.request_arrived(acme, 1.0)
    zoo.settle_evictions([(acme, zoo.ledger.evict(acme, 10, "reclaim"))])
    assert acme.state == "Active"


def test_a_request_wakes_an_evicted_zone_as_the_same_zone(zoo):
    acme = zoo.zone("acme", cached=10)
    zoo.settle_evictions([(acme, zoo.ledger.evict(acme, 10, "idle"))])
    woken = zoo.tenancy.zone_for("acme", 5.0)
    zoo.tenancy.request_arrived(woken, 5.0)
    assert woken is acme
    assert (acme.state, acme.number) == ("Active", 1)


def test_each_change_of_state_is_noted_once(zoo):
    acme = zoo.zone("acme", cached=1)
    zoo.tenancy.request_arrived(acme, 1.0)
    zoo.tenancy.request_arrived(acme, 1.0)
    zoo.tenancy.request_finished(acme, 2.0)
    zoo.tenancy.request_finished(acme, 2.0)
    zoo.settle_evictions([(acme, zoo.ledger.evict(acme, 1, "idle"))])
    changes = [note.change for note in zoo.events("lifecycle")]
    assert changes[0] == "declared"
    assert changes[-1] == "evicted"
