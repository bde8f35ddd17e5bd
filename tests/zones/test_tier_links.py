"""A tier's chunks that are useful only together: none stays without the others, whatever evicts them."""

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.tiers import TierShare
from tests.zones.core import declare
from tests.zones.test_tier import Chunks


def hit(chunks, zone, count):
    """Adds `count` chunks that form a hit."""
    stored = chunks.keep(zone, count)
    assert chunks.tier.link(zone, stored, [stored]) == []
    chunks.tier.check()
    return stored


def test_with_what_is_evicted_goes_what_is_of_no_use_without_it():
    chunks = Chunks(acme={"limit": 10})
    acme = chunks.active("acme")
    old, new = hit(chunks, acme, 6), hit(chunks, acme, 4)
    granted, given_up = chunks.tier.make_room(acme, 1)
    assert (granted, sorted(given_up)) == (1, old)
    assert list(acme.cached) == new
    chunks.tier.check()


def test_the_beginning_that_prompts_have_in_common_stays_with_the_last_of_them():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    common, first, second = chunks.keep(acme, 3), chunks.keep(acme, 2), chunks.keep(acme, 2)
    assert chunks.tier.link(acme, common + first, [common + first]) == []
    assert chunks.tier.link(acme, second, [common + second]) == []
    assert chunks.tier.lose(acme, first[0]) == first
    assert sorted(chunks.tier.lose(acme, second[1])) == sorted(common + second)
    assert acme.held == 0
    chunks.tier.check()


def test_what_a_request_stored_of_a_prompt_that_is_not_all_there_is_given_up():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    kept, lost = hit(chunks, acme, 3), chunks.keep(acme, 3)
    chunks.tier.lose(acme, lost[1])
    assert chunks.tier.link(acme, [*kept, *lost], [lost]) == [lost[0], lost[2]]
    assert acme.held == 3


def test_what_is_being_stored_may_be_of_a_hit():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    stored, storing = chunks.keep(acme, 2), chunks.begin(acme, 2)
    assert chunks.tier.link(acme, stored + storing, [stored + storing]) == []
    assert sorted(chunks.tier.stored(storing, success=False)) == sorted(stored + storing)
    assert acme.held == 0
    chunks.tier.check()


def test_what_is_in_transfer_goes_when_that_ends():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    read, other, lost = hit(chunks, acme, 3)
    chunks.tier.load(acme, [read])
    assert chunks.tier.lose(acme, lost) == [lost, other]
    assert not chunks.tier.has_stored(acme, read), "no new load of it begins"
    assert chunks.tier.loaded([read]) == [read]
    chunks.tier.check()


def test_what_requests_count_on_stays_though_the_hit_is_gone_that_it_was_of():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    beginning, read, first, last = hit(chunks, acme, 4)
    chunks.tier.load(acme, [read])
    chunks.tier.is_counted_on = {beginning, read}.__contains__
    assert chunks.tier.lose(acme, last) == [last, first]
    assert chunks.tier.loaded([read]) == []
    assert list(acme.cached) == [beginning, read]
    chunks.tier.is_counted_on = {beginning}.__contains__
    assert chunks.tier.link(acme, [read], []) == [read]
    chunks.tier.check()


def test_a_hit_with_anothers_chunk_is_none():
    chunks = Chunks(acme={}, late={})
    acme, late = chunks.active("acme"), chunks.active("late")
    own, foreign = chunks.keep(acme, 2), chunks.keep(late, 1)
    assert chunks.tier.link(acme, own + foreign, [foreign + own]) == own
    assert late.held == 1, "it is not this zone's to give up"


def test_chunks_unused_for_a_time_take_the_rest_along():
    chunks = Chunks(acme={"ttl_seconds": 10.0})
    acme = chunks.active("acme")
    old, new = hit(chunks, acme, 3)[0], chunks.keep(acme, 1)
    chunks.tier.upkeep(5.0)
    chunks.tier.use(acme, [chunk for chunk in list(acme.cached) if chunk != old])
    assert len(chunks.tier.upkeep(11.0)) == 3
    assert list(acme.cached) == new


def test_a_lower_limit_leaves_whole_hits():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    hit(chunks, acme, 6)
    kept = hit(chunks, acme, 4)
    chunks.shares["acme"] = TierShare(tier="cpu", limit=9)
    assert len(chunks.reload(declare("acme"))) == 6
    assert list(acme.cached) == kept


def test_a_purge_reports_all_that_goes_for_it():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    for count in (6, 4):
        hit(chunks, acme, count)
    config = make_config(2, PoolConfig(namespace="n", name="p"), [declare("acme", purge="once")])
    parts = [len(given_up) for _, given_up in chunks.tier.apply_in_parts(config, 0.0, at_once=1)]
    assert [count for count in parts if count] == [6, 4]
    assert (acme.purge.is_complete, acme.purge.evicted) == (True, 10)
    assert acme.counters.evicted == {"purge": 10}


def test_a_zone_is_evicted_when_the_last_of_it_goes_with_a_copy_that_failed():
    chunks = Chunks(acme={})
    acme = chunks.active("acme")
    stored, storing = chunks.keep(acme, 2), chunks.begin(acme, 1)
    chunks.tier.link(acme, stored + storing, [stored + storing])
    chunks.tier.request_finished(acme, 0.0)
    chunks.tier.stored(storing, success=False)
    assert acme.state == "Evicted"


def test_a_zone_that_goes_and_a_reset_leave_no_links():
    chunks = Chunks(acme={}, late={})
    acme, late = chunks.active("acme"), chunks.active("late")
    hit(chunks, acme, 4)
    chunks.tier.request_finished(acme, 0.0)
    assert len(chunks.reload(declare("late"))) == 4
    hit(chunks, late, 4)
    chunks.tier.reset()
    assert list(chunks.tier.links) == []
    chunks.tier.check()


def test_what_is_entitled_to_room_has_it_at_once_from_hits_too():
    chunks = Chunks(acme={}, gold={"reserved": 40})
    acme = chunks.active("acme")
    for _ in range(10):
        hit(chunks, acme, 10)
    gold = chunks.active("gold")
    assert len(chunks.keep(gold, 35)) == 35
    assert acme.held == 60, "whole hits"
