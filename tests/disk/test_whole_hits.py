"""Hits on a real disk whose chunks are useful only together: stored, evicted and found again whole."""

import errno
import os
import time

import pytest

from tenantzone_runtime.disk.jobs import Jobs
from tenantzone_runtime.disk.relinking import FoundHit
from tenantzone_runtime.disk.transfers import Job
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.disk.disks import NUMBERS, Disk, content
from tests.disk.test_relinking import blocks, keys
from tests.zones.core import declare

SHAPE = HitShape(1, (None, 2))


@pytest.fixture
def disk(tmp_path):
    made = []

    def make(**options):
        made.append(Disk(tmp_path / "tier", shape=SHAPE, **options))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def hit_of(tokens):
    return SHAPE.keys([keys(blocks(*tokens), group) for group in range(2)], len(tokens))


def begin(tenants, tenant, tokens):
    number, zone, hit = next(NUMBERS), tenants.zone(tenant), hit_of(tokens)
    tenants.tier.tier.request_arrived(zone, time.monotonic())
    lacking = tenants.tier.lacks(zone, hit)
    chunks = [(key, memoryview(content(key))) for key in lacking]
    tenants.tier.store_hit(number, zone, chunks, hit, keys(blocks(*tokens), 0))
    return number


def store(tenants, tenant, *prompts):
    for tokens in prompts:
        tenants.end(begin(tenants, tenant, tokens))


def has(tenants, tenant, tokens):
    """Whether a hit is there whole; a hit that is not whole finds nothing, except by chance."""
    zone = tenants.zone(tenant)
    there = [tenants.tier.holds(zone, key) for key in hit_of(tokens)]
    return all(there)


def held(tenants, tenant):
    return tenants.tier.figures().zones[tenant].held_bytes // 4096


def all_of_use(tenants):
    tier = tenants.tier.tier
    return all(slot in tier.links for zone in tier.ledger.zones.values() for slot in zone.cached)


def test_a_hit_is_stored_and_loaded_whole(disk):
    tenants = disk(acme={})
    store(tenants, "acme", "abcd")
    assert held(tenants, "acme") == 6
    assert tenants.load("acme", *hit_of("abcd")) == {key: content(key) for key in hit_of("abcd")}


def test_of_a_hit_that_there_is_no_room_for_nothing_is_stored(disk):
    tenants = disk(acme={}, chunks=5)
    store(tenants, "acme", "ab", "abcd")
    assert (has(tenants, "acme", "ab"), held(tenants, "acme")) == (True, 4)


def test_of_a_hit_that_is_more_than_may_be_on_its_way_nothing_is_stored(disk):
    tenants = disk(acme={}, bounds=TransferBounds(5, 100))
    store(tenants, "acme", "abcd")
    assert held(tenants, "acme") == 0
    assert tenants.counts("acme").writes_refused == 6


def test_hits_go_whole_the_one_first_that_was_used_longest_ago(disk):
    tenants = disk(acme={}, chunks=14)
    store(tenants, "acme", "abcd", "vwxy", "rstu")
    assert [has(tenants, "acme", tokens) for tokens in ("abcd", "vwxy", "rstu")] == [False, True, True]
    tenants.rest()
    assert len(tenants.paths()) == held(tenants, "acme") == 12


def test_of_hits_with_a_common_beginning_that_goes_first_which_was_used_longest_ago(disk):
    tenants = disk(acme={}, chunks=13)
    store(tenants, "acme", "abcd", "abcdef", "xy")
    assert held(tenants, "acme") == 6 + 4 + 4 - 0 - 2
    assert [has(tenants, "acme", tokens) for tokens in ("abcd", "abcdef", "xy")] == [False, True, True]


def test_a_chunk_that_can_not_be_read_takes_its_hit_along(disk):
    tenants = disk(acme={}, chunks=20)
    store(tenants, "acme", "abcd", "xy")
    key = hit_of("abcd")[1]
    path = tenants.paths()[key]
    path.write_bytes(b"x" * path.stat().st_size)
    assert tenants.load("acme", key) == {}
    tenants.rest()
    assert tenants.paths().keys() == set(hit_of("xy"))


def test_a_hit_with_a_chunk_that_can_not_be_written_leaves_nothing(disk):
    tenants = disk(acme={})
    tenants.files.errors["rename"] = OSError(errno.EIO, "injected")
    store(tenants, "acme", "abcd")
    tenants.files.errors.clear()
    tenants.rest()
    assert (held(tenants, "acme"), tenants.paths()) == (0, {})


def test_what_is_late_is_given_up_whole(disk):
    tenants = disk(acme={}, seconds=0.05)
    release = tenants.files.hold("write")
    store(tenants, "acme", "abcd")
    release.set()
    tenants.rest()
    assert (held(tenants, "acme"), tenants.paths()) == (0, {})


def test_a_hit_has_as_much_time_as_its_length_needs_while_it_gets_on():
    jobs = Jobs()
    long = Job(1, True, began=0.0, chunk_bytes=1, until=time.monotonic() + 1000.0)
    long.left = dict.fromkeys(keys(blocks(*"abc"), 0))
    jobs.begin(long)
    now = time.monotonic()
    assert jobs.late(now, 100.0) == [long], "nothing was moved for that long"
    assert not jobs.chunk_ended(long, next(iter(long.left)), None)
    assert jobs.late(now, 100.0) == []
    assert jobs.late(now + 1001.0, 10_000.0) == [long], "its time is over"


def test_the_time_of_a_hit_grows_with_what_is_on_its_way(disk):
    tenants = disk(acme={}, chunks=400, bounds=TransferBounds(1000, 1000))
    begin(tenants, "acme", "".join(chr(200 + number) for number in range(200)))
    (job,) = tenants.tier._jobs._going_on.values()
    assert job.until - job.began == pytest.approx(4 * tenants.settings.seconds)


def test_hits_are_found_again_by_the_next_engine_and_go_whole_there(disk):
    tenants = disk(acme={}, chunks=16)
    store(tenants, "acme", "abcd", "vwxy")
    tenants.restart()
    assert [has(tenants, "acme", tokens) for tokens in ("abcd", "vwxy")] == [True, True]
    assert all_of_use(tenants)
    assert tenants.load("acme", *hit_of("abcd")) == {key: content(key) for key in hit_of("abcd")}
    tenants.tier.use(tenants.zone("acme"), reversed(hit_of("abcd")))
    store(tenants, "acme", "rstu")
    assert [has(tenants, "acme", tokens) for tokens in ("abcd", "vwxy", "rstu")] == [True, False, True]
    assert all_of_use(tenants)


def test_what_lacks_a_chunk_at_the_start_is_removed(disk):
    tenants = disk(acme={}, chunks=20)
    store(tenants, "acme", "abcd", "xy")
    tenants.paths()[hit_of("abcd")[0]].unlink()
    tenants.restart()
    tenants.rest()
    assert tenants.paths().keys() == set(hit_of("xy"))
    assert all_of_use(tenants)


def test_what_a_smaller_share_has_no_room_for_at_the_start_is_removed_whole(disk):
    tenants = disk(acme={}, chunks=20)
    store(tenants, "acme", "abcd", "xy")
    tenants.shares.clear()
    tenants.config(*tenants.zones, acme={"limit": 7})
    tenants.restart(*tenants.zones)
    tenants.rest()
    assert tenants.paths().keys() == set(hit_of("xy"))
    assert held(tenants, "acme") == 4


@pytest.mark.parametrize("limit", [8, 9])
def test_what_hits_have_in_common_is_kept_for_the_one_that_was_added_last(disk, limit):
    tenants = disk(acme={}, chunks=20)
    store(tenants, "acme", "abcd", "abcdef")
    for key, path in tenants.paths().items():
        # A clear age for each file, whatever the resolution of the file system's clock.
        age = 200.0 if key in hit_of("abcd") else 100.0
        os.utime(path, times=(time.time() - age,) * 2)
    tenants.config(*tenants.zones, acme={"limit": limit})
    tenants.restart(*tenants.zones)
    assert (has(tenants, "acme", "abcdef"), held(tenants, "acme")) == (True, 8)
    assert all_of_use(tenants)


def test_of_hits_that_are_written_together_the_longest_goes_first(disk):
    # One writer: the shorter hit's own chunks are written last.
    tenants = disk(acme={}, chunks=13, writers=1)
    release = tenants.files.hold("write")
    numbers = [begin(tenants, "acme", tokens) for tokens in ("abcdef", "abcd")]
    release.set()
    for number in numbers:
        tenants.end(number)
    store(tenants, "acme", "xy")
    assert [has(tenants, "acme", tokens) for tokens in ("abcdef", "abcd", "xy")] == [False, True, True]


def test_what_thousands_of_hits_have_in_common_is_gone_through_once_at_the_start(disk, monkeypatch):
    tenants = disk(acme={}, chunks=200)
    prompts = ["".join(chr(300 + number) for number in range(60)) + branch for branch in "abcdefghij"]
    store(tenants, "acme", *prompts)
    asked, of_beginning = [], FoundHit.of_beginning
    monkeypatch.setattr(FoundHit, "of_beginning", lambda *given: asked.append(given) or of_beginning(*given))
    tenants.restart()
    assert all(has(tenants, "acme", tokens) for tokens in prompts)
    assert all_of_use(tenants)
    assert len(asked) <= 4 * (60 + 10)
    assert not tenants.tier._catalog._adoption.hits


def test_what_chunks_by_themselves_left_is_of_no_use_and_goes(disk):
    tenants = disk(acme={})
    tenants.store("acme", *hit_of("ab"))
    tenants.restart()
    tenants.rest()
    assert tenants.paths() == {}


def test_a_purge_has_a_receipt_for_all_of_a_hit(disk):
    tenants = disk(acme={}, late={}, chunks=20)
    store(tenants, "acme", "abcd")
    store(tenants, "late", "abcd")
    tenants.declare(declare("acme", purge="p1"), declare("late"))
    receipts = []
    tenants.wait(lambda: receipts.extend(tenants.tier.take_receipts()) or receipts)
    assert (receipts[0].tenant, receipts[0].chunks, receipts[0].files) == ("acme", 6, 6)
    assert (has(tenants, "acme", "abcd"), has(tenants, "late", "abcd")) == (False, True)
    assert held(tenants, "acme") == 0


def test_another_salt_key_leaves_nothing(disk):
    tenants = disk(acme={}, chunks=20)
    store(tenants, "acme", "abcd", "abcdef")
    tenants.tier.renew()
    tenants.rest()
    assert (held(tenants, "acme"), tenants.paths()) == (0, {})


def test_what_is_reserved_is_not_given_up_for_another_zones_hit(disk):
    tenants = disk(gold={"reserved": 6}, burst={}, chunks=12)
    store(tenants, "gold", "abcd")
    store(tenants, "burst", "abcd", "vwxy", "rstuv")
    assert has(tenants, "gold", "abcd")
    assert held(tenants, "burst") == 6
