"""The disk tier with real files: what tenants store, find and load, what is evicted, and what survives a restart."""

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tenantzone_runtime.disk.opening import open_disk_tier
from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.disk.disks import CHUNK, SALT_KEY, Disk, content, in_bytes, instance, keys
from tests.zones.core import declare

A, B, C = (bytes([number]) * 36 for number in range(3))


def test_what_a_tenant_stored_it_finds_and_loads_and_no_other(disk):
    tenants = disk(acme={}, late={})
    assert tenants.store("acme", A, B) == [A, B]
    assert tenants.find("acme", A, B, C) == [True, True, False]
    assert tenants.find("late", A, B) == [False, False], "even with the same hash"
    assert tenants.load("acme", A, B) == {A: content(A), B: content(B)}
    assert tenants.load("late", A, B) == {}
    counts = tenants.counts("acme")
    assert (counts.hits, counts.misses, counts.written, counts.read) == (2, 1, 2, 2)


def test_what_is_seen_twice_is_stored_where_the_terms_of_admission_say_so(disk):
    tenants = disk(acme={"admission": "SeenTwice"}, late={})
    assert tenants.store("acme", A, B) == []
    assert tenants.counts("acme").not_admitted == 2
    assert tenants.store("acme", A, C) == [A]
    assert tenants.store("late", A, B) == [A, B]


def test_two_tenants_store_the_same_chunk_apart(disk):
    tenants = disk(acme={}, late={})
    tenants.store("acme", A)
    tenants.store("late", A)
    assert len(list((tenants.root / "objects").iterdir())) == 2
    assert tenants.tier.figures().zones["late"].held_bytes == 4096


def test_what_is_there_is_not_stored_again(disk):
    tenants = disk(acme={})
    tenants.store("acme", A)
    before = tenants.paths()
    assert tenants.store("acme", A) == []
    assert tenants.paths() == before


def test_files_show_neither_content_nor_tenant(disk):
    tenants = disk(acme={})
    tenants.store("acme", A)
    (path,) = tenants.paths().values()
    assert content(A)[:16] not in path.read_bytes()
    assert b"acme" not in path.read_bytes()
    assert "acme" not in str(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_tier_gives_up_what_was_used_longest_ago_and_its_file(disk):
    tenants = disk(acme={}, chunks=4)
    stored = keys(4)
    for key in stored:
        tenants.store("acme", key)
    tenants.load("acme", stored[0])
    assert tenants.store("acme", A) == [A]
    tenants.rest()
    assert tenants.find("acme", *stored, A) == [True, False, True, True, True]
    assert set(tenants.paths()) == {A, stored[0], stored[2], stored[3]}
    assert sum(tenants.tier.figures().zones["acme"].evictions.values()) == 1


def test_a_reservation_is_never_evicted_for_others_and_a_limit_holds(disk):
    tenants = disk(acme={"reserved": 3}, burst={"limit": 4}, chunks=8)
    mine = keys(3, b"a")
    tenants.store("acme", *mine)
    for key in keys(20, b"b"):
        tenants.store("burst", key)
    assert tenants.find("acme", *mine) == [True] * 3
    assert tenants.tier.figures().zones["burst"].held_bytes == 4 * 4096
    tenants.rest()
    assert len(tenants.paths()) == 7


def test_there_are_never_more_files_than_the_capacity(disk):
    tenants = disk(acme={}, burst={}, chunks=4)
    # Files that were given up stay until their removal gets its turn.
    held = tenants.files.hold("remove")
    tenants.store("acme", *keys(4))
    number = tenants.begin_store("burst", A)
    tenants.tier.finished()
    assert len(tenants.paths()) <= 4
    held.set()
    tenants.end(number)
    assert len(tenants.paths()) <= 4


def test_the_beginning_of_a_prompt_does_not_go_for_its_end(disk):
    tenants = disk(acme={}, chunks=3)
    tenants.store("acme", *keys(3))
    tenants.end(tenants.begin_store("acme", A, protected=keys(1)))
    assert tenants.find("acme", keys(1)[0], A) == [True, True]


def test_the_bytes_on_their_way_for_a_zone_are_bounded(disk):
    tenants = disk(acme={}, bounds=TransferBounds(stores=2, loads=1))
    assert len(tenants.store("acme", A, B, C)) == 2
    assert tenants.counts("acme").writes_refused == 1
    assert tenants.load("acme", A, B) == {A: content(A)}
    assert not tenants.tier.find(tenants.zone("acme"), A, promised=1)


def test_a_limit_that_is_lowered_while_chunks_are_written_holds_when_they_are(disk):
    tenants = disk(acme={}, chunks=8)
    held = tenants.files.hold("write")
    number = tenants.begin_store("acme", *keys(6))
    tenants.shares["acme"] = in_bytes({"limit": 2})
    tenants.declare(declare("acme"))
    held.set()
    tenants.end(number)
    tenants.rest()
    assert tenants.tier.figures().zones["acme"].held_bytes == 2 * 4096
    assert len(tenants.paths()) == 2


def test_a_purge_removes_each_file_and_gives_a_receipt(disk):
    tenants = disk(acme={}, late={})
    tenants.store("acme", *keys(3))
    tenants.store("late", A)
    held = tenants.files.hold("write")
    number = tenants.begin_store("acme", B)
    tenants.declare(declare("acme", purge="p1"), declare("late"))
    assert tenants.find("acme", *keys(3)) == [False] * 3
    held.set()
    tenants.end(number)
    (receipt,) = tenants.wait(tenants.tier.take_receipts)
    assert (receipt.tenant, receipt.purge, receipt.chunks, receipt.files) == ("acme", "p1", 4, 4)
    assert receipt.is_complete
    assert set(tenants.paths()) == {A}, "also what was on its way"
    assert tenants.store("acme", B) == [B], "what comes after it stays"
    assert tenants.load("acme", B) == {B: content(B)}


def test_a_purge_that_was_carried_out_is_not_again_by_a_later_config(disk):
    tenants = disk(acme={}, late={})
    tenants.store("acme", A)
    for zones in ([declare("acme", purge="p1"), declare("late")], [declare("acme", purge="p1")]):
        tenants.declare(*zones)
        tenants.rest()
        tenants.store("acme", B)
        assert tenants.find("acme", A, B) == [False, True]
    assert tenants.load("acme", B) == {B: content(B)}
    assert [receipt.purge for receipt in tenants.tier.take_receipts()].count("p1") == 1


def test_what_was_purged_opens_no_more_even_if_it_is_put_back(disk):
    tenants = disk(acme={})
    tenants.store("acme", A)
    (path,) = tenants.paths().values()
    old = path.read_bytes()
    tenants.declare(declare("acme", purge="p1"))
    tenants.wait(tenants.tier.take_receipts)
    tenants.store("acme", A)
    (path,) = tenants.paths().values()
    path.write_bytes(old)
    assert tenants.load("acme", A) == {}
    assert tenants.counts("acme").corrupt == 1


def test_a_purge_that_was_not_finished_is_after_a_restart(disk):
    tenants = disk(acme={})
    tenants.store("acme", A)
    tenants.files.errors["remove"] = OSError(5, "broken")
    tenants.declare(declare("acme", purge="p1"))
    assert tenants.paths()
    tenants.restart(declare("acme", purge="p1"))
    assert tenants.find("acme", A) == [False]
    assert not tenants.paths()


def test_a_zone_that_goes_leaves_nothing(disk):
    tenants = disk(acme={}, late={})
    tenants.store("acme", A, B)
    tenants.store("late", C)
    zone = tenants.zone("acme")
    tenants.declare(declare("late"))
    tenants.tier.tier.request_finished(zone, time.monotonic())
    (receipt,) = tenants.wait(tenants.tier.take_receipts)
    assert (receipt.tenant, receipt.files, receipt.is_complete) == ("acme", 2, True)
    assert set(tenants.paths()) == {C}
    assert "acme" not in tenants.tier.figures().zones


def test_a_zone_that_goes_while_it_loads_leaves_nothing(disk):
    tenants = disk(acme={}, late={})
    tenants.store("acme", A)
    held = tenants.files.hold("read")
    memory = {A: bytearray(CHUNK)}
    number = tenants.begin_load("acme", memory)
    tenants.declare(declare("late"))
    held.set()
    tenants.end(number)
    tenants.wait(tenants.tier.take_receipts)
    assert not tenants.paths()


def test_what_is_not_used_for_its_ttl_goes(disk):
    tenants = disk(acme={"ttl_seconds": 0.05})
    tenants.store("acme", A)
    tenants.wait(lambda: not tenants.paths())
    assert tenants.find("acme", A) == [False]


def test_what_was_stored_is_found_after_a_restart_the_newest_first(disk):
    tenants = disk(acme={}, late={}, chunks=8)
    stored = keys(6)
    tenants.store("acme", *stored)
    tenants.store("late", A)
    for age, key in enumerate(stored):
        os.utime(tenants.paths()[key], (0, time.time() - 100 + age))
    tenants.chunks = 5
    tenants.restart()
    assert tenants.find("acme", *stored) == [False] + [True] * 5
    assert tenants.load("acme", stored[-1]) == {stored[-1]: content(stored[-1])}
    assert len(tenants.paths()) == 5, "what has no room is removed"


def test_where_a_disk_has_less_room_after_a_restart_what_is_within_a_reservation_stays(disk):
    tenants = disk(late={}, acme={"reserved": 3}, chunks=8)
    tenants.store("late", A, B, C)
    stored = keys(5)
    tenants.store("acme", *stored)
    for age, key in enumerate(stored):
        os.utime(tenants.paths()[key], (0, time.time() - 100 + age))
    tenants.chunks = 4
    tenants.restart()
    assert tenants.find("acme", *stored) == [False] * 2 + [True] * 3
    assert sum(tenants.find("late", A, B, C)) == 1, "unreserved space goes to the first that asks"
    tenants.rest()
    assert len(tenants.paths()) == 4


def test_an_age_goes_on_after_a_restart(disk):
    tenants = disk(acme={"ttl_seconds": 1000.0})
    tenants.store("acme", A, B)
    os.utime(tenants.paths()[A], (0, time.time() - 2000))
    os.utime(tenants.paths()[B], (0, time.time() - 998))
    tenants.restart()
    assert tenants.find("acme", A) == [False]
    tenants.wait(lambda: not tenants.paths())
    assert tenants.tier.figures().found == 1


@pytest.mark.parametrize("part", ["weights_revision", "layout", "dtype", "engine_version", "lora_digest"])
def test_another_instance_finds_nothing_and_removes_what_was_there(disk, part):
    tenants = disk(acme={})
    tenants.store("acme", A)
    tenants.restart(**{part: "another"})
    assert tenants.find("acme", A) == [False]
    assert not tenants.paths()


def test_an_engine_without_requests_takes_note_of_its_disk(disk):
    """No request then collects results: neither the listing at the start, nor the removals of a purge."""
    tenants = disk(acme={}, opening=False)
    until = time.monotonic() + 20
    while not tenants.tier.is_open:
        assert time.monotonic() < until
        tenants.tier.upkeep()
    tenants.store("acme", A)
    tenants.declare(declare("acme", purge="once"), opening=False)
    receipts = []
    while not receipts:
        assert time.monotonic() < until
        tenants.tier.upkeep()
        receipts = tenants.tier.take_receipts()
    assert [(receipt.purge, receipt.files) for receipt in receipts] == [("once", 1)]


def test_another_salt_key_opens_nothing(disk):
    tenants = disk(acme={})
    tenants.store("acme", A)
    tenants.restart(salt_key=b"o" * 32)
    assert tenants.load("acme", A) == {}
    assert tenants.counts("acme").corrupt == 1


def test_two_engines_do_not_share_a_folder(disk, caplog):
    tenants = disk(acme={})
    tenants.store("acme", A)
    other = Disk.__new__(Disk)
    other.__dict__ |= tenants.__dict__
    other.files = type(tenants.files)()
    other.tier = other._new()
    other.declare(declare("acme"), opening=False)
    other.wait(lambda: other.tier.figures().removals_failed or other.tier.removal_breaker._failures)
    assert not other.tier.is_open
    assert "another engine is using this folder" in caplog.text
    assert tenants.load("acme", A) == {A: content(A)}
    other.tier.stop()


@pytest.mark.parametrize(
    ("root", "capacity", "words"), [("a/b", 10**6, "must be an absolute path"), ("/a", 100, "less than one chunk")]
)
def test_a_tier_that_can_not_be_is_refused(root, capacity, words):
    with pytest.raises(ValueError, match=words):
        open_disk_tier(Path(root), capacity, CHUNK, salt_key=lambda: SALT_KEY, instance=instance)


def test_a_zone_that_comes_back_while_its_files_go_stores_when_they_are_gone(disk):
    tenants = disk(acme={}, late={})
    tenants.store("acme", A)
    held = tenants.files.hold("remove")
    tenants.tier.tier.request_finished(tenants.zone("acme"), time.monotonic())
    tenants.declare(declare("late"))
    tenants.declare(declare("acme"), declare("late"))
    assert tenants.store("acme", B) == [], "it would go with them"
    held.set()
    tenants.wait(tenants.tier.take_receipts)
    assert tenants.store("acme", B) == [B]
    tenants.rest()
    assert set(tenants.paths()) == {B}


def test_of_several_writes_of_a_chunk_the_newest_is_found(disk):
    tenants = disk(acme={})
    tenants.store("acme", B)
    newest = tenants.paths()[B]
    for number in range(6):
        older = newest.with_name(f"{B.hex()}-{number:024x}")
        older.write_bytes(newest.read_bytes())
        os.utime(older, (0, time.time() - 100))
    tenants.restart()
    assert tenants.load("acme", B) == {B: content(B)}
    assert set(tenants.paths()) == {B}, "and the others are removed"


def test_a_file_is_on_the_disk_before_it_has_its_name(disk, monkeypatch):
    tenants = disk(acme={})
    synced = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (tenants.files.calls.append("fsync"), synced(descriptor)))
    tenants.files.calls.clear()
    tenants.store("acme", A)
    assert tenants.files.calls == ["write", "fsync", "rename"]


def test_a_lowered_limit_goes_in_parts_between_which_others_store(disk):
    tenants = disk(acme={}, late={}, chunks=60)
    tenants.store("acme", *keys(40))
    acme, held, stored = tenants.zone("acme"), [40], []
    for _ in tenants.tier.apply_in_parts(tenants.config(declare("acme"), declare("late"), acme={"limit": 5}), 7):
        held.append(acme.held)
        if acme.held in range(6, 40) and not stored:
            stored.append(tenants.begin_store("late", b"l" * 36))
    assert max(before - after for before, after in pairwise(held)) == 7
    assert held[-1] == 5
    assert tenants.end(*stored).moved == [b"l" * 36]
    tenants.rest()
    assert len(tenants.paths()) == 5 + 1


def test_a_purge_goes_in_parts_and_nothing_is_found_from_the_first_on(disk):
    tenants = disk(acme={}, chunks=60)
    stored = keys(40)
    tenants.store("acme", *stored)
    tenants.tier.lose(tenants.zone("acme"), stored[:1])
    for _ in tenants.tier.apply_in_parts(tenants.config(declare("acme", purge="once")), 7):
        assert not any(tenants.find("acme", *stored))
        # The results that come in meanwhile let all pending removals continue.
        until = time.monotonic() + 5
        while tenants.tier._catalog.slots.to_remove:
            assert time.monotonic() < until
            tenants.tier.finished()
        assert not tenants.zone("acme").held or not tenants.tier._catalog._sweeping._under_way
    assert tenants.zone("acme").held == 0
    tenants.rest()
    (receipt,) = tenants.tier.take_receipts()
    assert (receipt.purge, receipt.chunks, receipt.files) == ("once", 39, 39)
    assert tenants.store("acme", *keys(60)) == keys(60), "each slot is free again"
