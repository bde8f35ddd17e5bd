"""Active, Idle, Evicted: how requests change a zone's state. test_timers has the effects of time."""

import pytest

from tests.zones.core import Core


@pytest.fixture
def core():
    return Core()


def test_a_new_zone_is_idle_and_lends_nothing_yet(core):
    acme = core.zone("acme", reserved=40)
    assert (acme.state, acme.quiet) == ("Idle", False)


def test_a_zone_is_active_from_its_first_request_to_the_end_of_its_last(core):
    acme = core.zone("acme")
    core.tenancy.request_arrived(acme, 1.0)
    core.tenancy.request_arrived(acme, 2.0)
    core.tenancy.request_finished(acme, 3.0)
    assert (acme.state, acme.last_active) == ("Active", 3.0)
    core.tenancy.request_finished(acme, 4.0)
    assert (acme.state, acme.last_active) == ("Idle", 4.0)


def test_a_request_ends_the_quiet_at_once(core):
    acme = core.zone("acme", reserved=40, quiet=True)
    burst = core.zone("burst")
    assert core.takeable(burst) == 100
    core.tenancy.request_arrived(acme, 1.0)
    assert not acme.quiet
    assert core.takeable(burst) == 60


def test_more_requests_cannot_end_than_came(core):
    acme = core.zone("acme")
    with pytest.raises(AssertionError, match="zone acme: more requests ended than began"):
        core.tenancy.request_finished(acme, 1.0)


def test_an_idle_zone_whose_last_block_goes_is_evicted(core):
    acme = core.zone("acme", cached=10)
    core.settle_evictions([(acme, core.ledger.evict(acme, 9, "quiet"))])
    assert acme.state == "Idle"
    core.settle_evictions([(acme, core.ledger.evict(acme, 1, "quiet"))])
    assert acme.state == "Evicted"


def test_an_active_zone_is_not_evicted_however_little_it_holds(core):
    acme = core.zone("acme", cached=10)
    core.tenancy.request_arrived(acme, 1.0)
    core.settle_evictions([(acme, core.ledger.evict(acme, 10, "reclaim"))])
    assert acme.state == "Active"


def test_a_request_wakes_an_evicted_zone_as_the_same_zone(core):
    acme = core.zone("acme", cached=10)
    core.settle_evictions([(acme, core.ledger.evict(acme, 10, "idle"))])
    woken = core.tenancy.zone_for("acme", 5.0)
    core.tenancy.request_arrived(woken, 5.0)
    assert woken is acme
    assert (acme.state, acme.number) == ("Active", 1)


def test_each_change_of_state_is_noted_once(core):
    acme = core.zone("acme", cached=1)
    core.tenancy.request_arrived(acme, 1.0)
    core.tenancy.request_arrived(acme, 1.0)
    core.tenancy.request_finished(acme, 2.0)
    core.tenancy.request_finished(acme, 2.0)
    core.settle_evictions([(acme, core.ledger.evict(acme, 1, "idle"))])
    changes = [note.change for note in core.events("lifecycle")]
    assert changes[0] == "declared"
    assert changes[-1] == "evicted"
