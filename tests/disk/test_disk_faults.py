"""A disk that is slow, full, read-only, gone or wrong costs hits: no request waits, and no wrong chunk is loaded."""

import errno
import logging
import os
import resource
import shutil
import subprocess
import time

import pytest

from tenantzone_runtime.disk import catalog
from tests.disk.disks import CHUNK, Disk, content, files_in, keys
from tests.zones.core import declare

A, B, C = (bytes([number]) * 36 for number in range(3))
FULL = OSError(errno.ENOSPC, "no space left on device")
BROKEN = OSError(errno.EIO, "input/output error")


def changed(path):
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)


def truncated(path):
    os.truncate(path, 100)


def emptied(path):
    os.truncate(path, 0)


def lengthened(path):
    path.write_bytes(path.read_bytes() + b"x")


def foreign(path):
    path.write_bytes(os.urandom(path.stat().st_size))


@pytest.mark.parametrize("harm", [changed, truncated, emptied, lengthened, foreign])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_object_that_is_not_as_it_was_written_is_a_miss_and_counted(disk, harm, restarted):
    tenants = disk(acme={})
    tenants.store("acme", A, B)
    harm(tenants.paths()[A])
    if restarted:
        tenants.restart()
    assert tenants.load("acme", A, B) == {B: content(B)}
    assert tenants.find("acme", A) == [False]
    # A wrong size is noticed without reading the file.
    figures = tenants.tier.figures()
    assert figures.zones["acme"].counts.corrupt + figures.leftovers == 1
    tenants.rest()
    assert set(tenants.paths()) == {B}, "it is removed"
    assert tenants.store("acme", A) == [A], "and may be stored again"
    assert not figures.reads_fail, "the disk does what it should"


@pytest.mark.parametrize("restarted", [False, True])
def test_swapped_objects_are_misses(disk, restarted):
    tenants = disk(acme={})
    tenants.store("acme", A, B)
    one, other = tenants.paths()[A], tenants.paths()[B]
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1])
    other.write_bytes(texts[0])
    if restarted:
        tenants.restart()
    assert tenants.load("acme", A, B) == {}
    assert tenants.counts("acme").corrupt == 2


def test_another_tenants_object_in_its_place_is_a_miss(disk):
    tenants = disk(acme={}, late={})
    tenants.store("acme", A)
    (mine,) = tenants.paths().values()
    written = mine.read_bytes()
    tenants.store("late", A)
    (theirs,) = [path for path in files_in(tenants.root / "objects") if path != mine]
    theirs.write_bytes(written)
    assert tenants.load("late", A) == {}
    assert tenants.counts("late").corrupt == 1


def test_an_older_write_of_the_same_chunk_in_its_place_is_a_miss(disk):
    tenants = disk(acme={}, chunks=1)
    tenants.store("acme", A)
    old = tenants.paths()[A].read_bytes()
    tenants.store("acme", B)
    tenants.store("acme", A)
    tenants.paths()[A].write_bytes(old)
    assert tenants.load("acme", A) == {}
    assert tenants.counts("acme").corrupt == 1


def test_a_link_in_an_objects_place_is_not_followed(disk, tmp_path):
    tenants = disk(acme={})
    tenants.store("acme", A)
    path = tenants.paths()[A]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert tenants.load("acme", A) == {}


def test_files_that_vanish_are_misses(disk):
    tenants = disk(acme={})
    tenants.store("acme", A, B)
    tenants.paths()[A].unlink()
    assert tenants.load("acme", A, B) == {B: content(B)}
    assert tenants.counts("acme").vanished == 1
    shutil.rmtree(tenants.root)
    assert tenants.load("acme", B) == {}
    assert tenants.find("acme", B) == [False]


@pytest.mark.parametrize("left", ["nothing", "a folder", "a file", "what was there"])
def test_a_folder_that_vanished_is_made_again_and_what_was_there_is_forgotten(
    disk, tmp_path, monkeypatch, caplog, left
):
    monkeypatch.setattr(catalog, "LOOK_SECONDS", 0.05)
    caplog.set_level(logging.INFO, "tenantzone_runtime.disk")
    tenants = disk(acme={}, chunks=30)
    tenants.store("acme", A, B)
    tenants.root.rename(tmp_path / "elsewhere")
    if left == "a folder":
        tenants.root.mkdir()
    elif left == "a file":
        tenants.root.write_text("no folder")
    elif left == "what was there":
        shutil.copytree(tmp_path / "elsewhere", tenants.root)
    tenants.wait(lambda: "was removed or replaced" in caplog.text)
    if left == "a file":
        for _ in range(30):
            assert tenants.store("acme", C) == []
        tenants.root.unlink()
    tenants.wait(lambda: tenants.tier.is_open)
    tenants.rest()
    assert tenants.find("acme", A, B) == [False, False]
    assert tenants.tier.figures().held_bytes == 0
    tenants.wait(lambda: tenants.store("acme", A) == [A])
    assert tenants.load("acme", A) == {A: content(A)}
    assert set(tenants.paths()) == {A}, "no other file takes room"
    assert caplog.text.count("was removed or replaced") == 1
    assert caplog.text.count("could not") <= 1


def test_a_folder_that_another_engine_has_made_meanwhile_is_left_to_it(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "LOOK_SECONDS", 0.05)
    tenants = disk(acme={})
    tenants.root.rename(tmp_path / "elsewhere")
    other = Disk(tenants.root, acme={})
    try:
        tenants.wait(
            lambda: (
                "another engine is using this folder" in tenants.tier.problem or tenants.tier.removal_breaker.openings
            )
        )
        assert "another engine is using this folder" in tenants.tier.removal_breaker.error
        assert tenants.store("acme", A) == []
    finally:
        other.stop()
    tenants.wait(lambda: tenants.tier.is_open)
    assert tenants.store("acme", A) == [A]


@pytest.mark.parametrize("error", [FULL, OSError(errno.EROFS, "read-only"), BROKEN, OSError(errno.EDQUOT, "quota")])
def test_a_disk_that_refuses_writes_is_left_alone_and_still_read(disk, error):
    tenants = disk(acme={}, chunks=30)
    tenants.store("acme", A)
    tenants.files.errors["write"] = error
    assert tenants.store("acme", *keys(5)) == []
    assert tenants.tier.figures().writes_fail
    assert tenants.tier.problem == f"writes fail: {error}"
    tenants.files.calls.clear()
    assert tenants.store("acme", *keys(5)) == []
    assert "write" not in tenants.files.calls, "the disk is not tried again at once"
    assert tenants.counts("acme").write_failures == 5
    assert tenants.counts("acme").refused_writes == {"closed": 5}
    assert tenants.load("acme", A) == {A: content(A)}
    assert tenants.tier.figures().zones["acme"].held_bytes == 4096, "what failed holds nothing"
    tenants.files.errors.clear()
    tenants.wait(lambda: tenants.store("acme", B) == [B])
    assert not tenants.tier.figures().writes_fail
    assert tenants.tier.problem == ""


def test_a_disk_that_refuses_reads_is_left_alone(disk):
    tenants = disk(acme={}, chunks=30)
    stored = keys(6)
    tenants.store("acme", *stored)
    tenants.files.errors["read"] = BROKEN
    assert tenants.load("acme", *stored[:5]) == {}
    assert tenants.tier.figures().reads_fail
    assert tenants.find("acme", stored[5]) == [False]
    assert tenants.counts("acme").reads_refused == 1
    tenants.files.errors.clear()
    tenants.wait(lambda: tenants.find("acme", stored[5]) == [True])
    assert tenants.load("acme", stored[5]) == {stored[5]: content(stored[5])}
    assert not tenants.tier.figures().reads_fail


def test_a_rename_that_fails_leaves_no_file(disk):
    tenants = disk(acme={})
    tenants.files.errors["rename"] = BROKEN
    assert tenants.store("acme", A) == []
    tenants.rest()
    assert not files_in(tenants.root)


def test_removals_that_fail_are_made_later_and_nothing_passes_the_capacity(disk):
    tenants = disk(acme={}, chunks=2)
    tenants.store("acme", A, B)
    tenants.files.errors["remove"] = BROKEN
    assert tenants.store("acme", C) == [], "what it would take the place of is still there"
    assert len(tenants.paths()) == 2
    assert tenants.tier.figures().removals_failed
    tenants.files.errors.clear()
    tenants.rest()
    assert len(tenants.paths()) == 1
    tenants.wait(lambda: tenants.store("acme", C) == [C])


def test_a_caller_never_waits_for_a_slow_disk_and_has_its_memory_back(disk):
    tenants = disk(acme={}, seconds=0.05)
    tenants.store("acme", B)
    reading, writing = tenants.files.hold("read"), tenants.files.hold("write")
    memory = bytearray(CHUNK)
    began = time.monotonic()
    load, store = tenants.begin_load("acme", {B: memory}), tenants.begin_store("acme", A)
    ends = [tenants.end(load), tenants.end(store)]
    assert time.monotonic() - began < 5, "the disk takes five seconds"
    assert [end.is_whole for end in ends] == [False, False]
    assert tenants.counts("acme").late == 2
    assert tenants.find("acme", B) == [False], "and it is asked no more"
    reading.set()
    writing.set()
    tenants.wait(lambda: tenants.tier.is_at_rest)
    assert memory == bytearray(CHUNK), "it belongs to another owner by now"
    tenants.files.held.clear()
    tenants.wait(lambda: tenants.find("acme", B) == [True])
    assert tenants.load("acme", B) == {B: content(B)}


def test_threads_that_hang_hold_up_no_request_and_no_stop(disk):
    tenants = disk(acme={}, late={}, seconds=0.05, chunks=30)
    stored = keys(20)
    tenants.store("acme", *stored)
    tenants.store("late", A)
    tenants.files.hold("read")
    first = tenants.begin_load("acme", {key: bytearray(CHUNK) for key in stored})
    second = tenants.begin_load("late", {A: bytearray(CHUNK)})
    assert not tenants.end(first).moved
    assert not tenants.end(second).moved
    began = time.monotonic()
    tenants.stop()
    assert time.monotonic() - began < 5


def test_all_jobs_end_when_they_are_given_up(disk):
    tenants = disk(acme={})
    held = tenants.files.hold("write")
    number = tenants.begin_store("acme", A)
    tenants.tier.give_up_jobs()
    (end,) = tenants.tier.finished()
    assert (end.number, end.is_whole) == (number, False)
    held.set()
    tenants.rest()


def test_a_tenants_loads_wait_behind_its_own(disk):
    tenants = disk(acme={}, late={}, chunks=30)
    stored = keys(10)
    tenants.store("acme", *stored)
    tenants.store("late", A)
    held = tenants.files.hold("read")
    flood = tenants.begin_load("acme", {key: bytearray(CHUNK) for key in stored})
    other = tenants.begin_load("late", {A: bytearray(CHUNK)})
    order = []
    original = tenants.files.read
    tenants.files.read = lambda path, content: (order.append(path.name.split("-")[0]), original(path, content))[1]
    held.set()
    tenants.end(flood)
    tenants.end(other)
    assert order.index(A.hex()) <= 2, "of two threads' worth of the flood"


def test_a_disk_that_comes_late_is_found_when_it_does(tmp_path):
    (tmp_path / "tier").write_text("not a folder")
    tenants = Disk(tmp_path / "tier", zones=[declare("acme")], opening=False)
    try:
        tenants.wait(lambda: tenants.tier.removal_breaker.openings)
        assert not tenants.tier.is_open
        assert tenants.store("acme", A) == []
        assert tenants.find("acme", A) == [False]
        (tmp_path / "tier").unlink()
        tenants.wait(lambda: tenants.tier.is_open)
        assert tenants.store("acme", A) == [A]
    finally:
        tenants.stop()


def test_a_file_system_that_is_really_full_costs_hits(tmp_path):
    root = tmp_path / "small"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", root], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("may not mount")
    tenants = Disk(root / "tier", chunks=1000, acme={})
    try:
        stored = [key for key in keys(40) if tenants.store("acme", key)]
        assert 0 < len(stored) <= 16
        assert tenants.tier.figures().writes_fail
        assert tenants.load("acme", *stored) == {key: content(key) for key in stored}
        assert not list((root / "tier" / "incoming").iterdir())
    finally:
        tenants.stop()
        subprocess.run(["umount", root], check=True)


def test_a_file_size_that_the_system_does_not_allow_costs_hits(disk):
    tenants = disk(acme={})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        assert tenants.store("acme", A) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert tenants.counts("acme").write_failures == 1
    tenants.rest()
    assert not list((tenants.root / "incoming").iterdir())
    assert tenants.store("acme", A) == [A]
