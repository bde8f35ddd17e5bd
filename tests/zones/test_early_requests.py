"""The zone of requests that arrived before any zone was declared."""

from math import inf

import pytest

from tenantzone_runtime.zones.model.quota import Quota
from tests.zones.core import Core, declare


@pytest.fixture
def core():
    return Core()


def test_it_is_promised_nothing_and_lends_nothing_and_may_use_all_blocks(core):
    spec = core.early().spec
    assert (spec.quota, spec.priority, spec.weight) == (Quota(reserved=0, limit=100, lendable=0), 0, 1)


def test_it_is_of_no_tenant_and_of_no_generation_of_the_config(core):
    early = core.early()
    assert (early.spec.tenant, early.spec.name, early.spec.generation) == ("", "", 0)
    assert early.name_in_journal is None


def test_others_reach_as_much_as_they_did_without_it(core):
    acme = core.zone("acme", reserved=30)
    core.early()
    assert core.ledger.totals.reachable(acme) == 100


def test_no_time_makes_it_quiet(core):
    early = core.early(in_use=10)
    assert early.spec.idle.after_seconds == inf
    assert list(early.spec.idle.releases) == []
    core.upkeep(1e9)
    assert (early.quiet, early.held) == (False, 10)


def test_it_takes_no_new_requests(core):
    core.apply(declare("acme"))
    early = core.early()
    assert early.leaving
    assert core.tenancy.zone_for("", 1.0) is None


def test_it_goes_with_the_last_of_its_requests(core):
    early = core.tenancy.zone_of_early_requests(2)
    core.tenancy.request_finished(early, 1.0)
    assert core.ledger.is_present(early)
    core.tenancy.request_finished(early, 2.0)
    assert not core.ledger.is_present(early)
    assert core.tenancy._timers.of(early) is None


def test_what_it_uses_is_not_reported(core):
    core.early(in_use=10)
    acme = core.zone("acme", in_use=10)
    core.now = 5.0
    assert [usage.zone for usage in core.tenancy.usage()] == [acme.spec.tenant]
