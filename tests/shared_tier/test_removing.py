"""Removals from shared storages are complete, to the last object: purges, removed zones, and expired chunks."""

import time

import pytest

from tenantzone_runtime.shared.manager.queries import Query
from tests.shared_tier.engines import objects, prompt, tenant
from tests.zones.core import declare


@pytest.fixture
def manager(brief):
    """A manager that waits for readers only as long as a test is willing to."""
    return brief


def test_a_purge_takes_all_and_gives_a_receipt(engine, manager):
    acme, keys = tenant(), prompt("a", 4)
    mine, other = engine(zones=[declare(acme)]), engine(zones=[declare(acme)])
    older = engine(zones=[declare(acme)], weights_revision="before")
    for each in (mine, older):
        each.store(acme, keys)
    mine.declare(declare(acme, purge="once"))
    assert mine.found(acme, keys) == 0
    receipt = mine.receipt()
    assert (receipt.tenant, receipt.purge, receipt.chunks, receipt.files, receipt.is_complete) == (
        acme,
        "once",
        8,
        8,
        True,
    )
    assert not objects(manager, acme)
    assert other.found(acme, keys) == 0
    assert mine.store(acme, keys) == keys, "the zone goes on"
    other.declare(declare(acme, purge="once"))
    other.receipt()
    assert other.found(acme, keys) == 4, "what was stored after the purge stays"


def test_a_purge_in_two_versions_of_a_model_ends_in_both(engine):
    acme, keys = tenant(), prompt("a", 2)
    both = [engine(zones=[declare(acme)]), engine(zones=[declare(acme)], weights_revision="before")]
    for each in both:
        each.store(acme, keys)
    for each in both:
        each.declare(declare(acme, purge="once"))
    for each in both:
        assert each.store(acme, keys) == keys
        each.receipt()
    assert [each.found(acme, keys) for each in both] == [2, 2], "neither takes what the other has stored since"


def test_a_purge_that_an_engine_did_not_end_the_next_one_ends(engine, manager):
    acme, keys = tenant(), prompt("a", 3)
    engine(zones=[declare(acme)]).store(acme, keys)
    later = engine(zones=[declare(acme, purge="once")])
    receipt = later.receipt()
    assert (receipt.purge, receipt.chunks) == ("once", 3)
    assert not objects(manager, acme)


def test_what_was_found_before_a_purge_is_not_loaded_after_it(engine):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    query = Query(keys)
    assert mine.hits(acme, query) == 2
    mine.declare(declare(acme, purge="once"))
    assert mine.hits(acme, query) == 0
    assert mine.counts(acme).corrupt == 0


def test_a_zone_that_goes_leaves_nothing(engine, manager):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    mine.declare()
    assert mine.receipt().chunks == 2
    assert not objects(manager, acme)
    names = [each["instance"]["name"] for each in manager.ask("ListInstances")["instances"]]
    assert not [name for name in names if name.startswith(f"{acme}.")]


@pytest.mark.parametrize("terms", [{"no_store": True}, {"offload": "Never"}])
def test_a_zone_that_keeps_nothing_has_nothing_there(engine, manager, terms):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    mine.declare(declare(acme, **terms))
    assert mine.found(acme, keys) == 0
    assert mine.receipt().files == 2
    assert mine.store(acme, keys) == []
    assert not objects(manager, acme)
    mine.declare(declare(acme))
    assert mine.store(acme, keys) == keys


def test_a_zone_that_comes_back_finds_nothing_of_before(engine, manager):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    mine.declare()
    mine.declare(declare(acme))
    assert mine.found(acme, keys) == 0
    assert mine.store(acme, keys) == [], "what was stored now would go with the rest"
    assert mine.receipt().chunks == 2
    assert mine.found(acme, keys) == 0
    assert mine.store(acme, keys) == keys


def test_of_a_zone_that_never_kept_anything_there_is_no_receipt(engine):
    acme = tenant()
    mine = engine(zones=[declare(acme, no_store=True)])
    mine.wait(lambda: mine.tier.is_at_rest)
    assert not mine.tier.take_receipts()


def test_chunks_unused_for_a_time_go(engine, manager):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme, ttl=0.5)])
    mine.store(acme, keys)
    mine.wait(lambda: not objects(manager, acme))
    assert mine.found(acme, keys) == 0


def test_a_salt_key_that_changes_ends_all(engine, manager):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    mine.salt_key, mine.parts["salt_key_id"] = b"o" * 32, "other"
    mine.tier.renew()
    assert mine.found(acme, keys) == 0
    mine.wait(lambda: not objects(manager, acme))


def test_a_question_that_is_too_old_is_asked_again(engine, manager):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    query = Query(keys)
    assert mine.hits(acme, query) == 2
    mine.wait(lambda: time.monotonic() >= query.until)
    asked = query.asked
    assert mine.hits(acme, query) == 2
    assert query.asked > asked, "the reported location may be another block's by now"
