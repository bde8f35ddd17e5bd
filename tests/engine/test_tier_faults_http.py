"""A disk that fails below a real engine: each request is answered as if nothing had been stored.

With ``pytest -s`` the last line of each fault is a row of the table in docs/tiers-disk.md.
"""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenantzone_contract.zone_config.tiers import TierShare
from tests.engine.test_tiers_http import PROMPT_BLOCKS, ask, in_tier, offer, prompt, store
from tests.engine.tiered_engines import BLOCK_TOKENS, ZONES
from tests.zones.core import declare

pytestmark = pytest.mark.flagged_engine

WHOLE = PROMPT_BLOCKS * BLOCK_TOKENS
SAFETY_SECONDS = 120
"""Seconds after which a test fails that would otherwise wait for ever."""
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own takes root to mount")


@pytest.fixture(scope="module")
def root(tiered):
    """The disk tier's folder."""
    return tiered.log.parent / "disk"


@pytest.fixture
def kept(tiered, root):
    """A prompt of dusk's that only the disk has; its answer; and its files."""
    text, answer, files = stored_files(tiered, root, "dusk", f"kept {time.monotonic_ns()}")
    leave_to_the_disk(tiered)
    return text, answer, files


def stored_files(engine, root, tenant, name):
    """A prompt that is whole on the disk, its answer, and its files."""
    before = set(files_in(root))
    text, answer = store(engine, tenant, name)
    # Late writes of an earlier attempt are older.
    files = sorted(set(files_in(root)) - before, key=lambda path: path.stat().st_mtime_ns)
    return text, answer, files[-PROMPT_BLOCKS:]


def leave_to_the_disk(engine):
    """Evicts what dusk has in blocks and in CPU memory, except a block."""
    nothing = (TierShare(tier="cpu", limit=0),)
    engine.declare(*ZONES[:-1], declare("dusk", after=0.0, limit=1, tiers=nothing))
    engine.wait(lambda: not in_tier(engine, "dusk", "cpu").held_bytes, "nothing is in memory")
    engine.declare(*ZONES)


def files_in(root):
    return [path for path in (root / "objects").rglob("*-*") if path.is_file()]


def lost_chunks(engine, tenant):
    """Chunks of a tenant that the disk did not load or store, by reason; without zeros."""
    (family,) = (
        each
        for each in text_string_to_metric_families(engine.metrics())
        if each.name == "tenantzone_zone_tier_lost_chunks"
    )
    ours = [each for each in family.samples if {("tenant", tenant), ("tier", "disk")} <= set(each.labels.items())]
    return {each.labels["reason"]: int(each.value) for each in ours if each.value}


def disk_problem(engine):
    """The disk's current problem, by the engine's report."""
    return next(each for each in engine.report().tiers if each.tier == "disk").problem


def again(engine, fault, text, answer):
    """Asks once more: the client gets the same answer whatever went wrong. Returns how much of the prompt was found."""
    lost, began = lost_chunks(engine, "dusk"), time.monotonic()
    reported, cached = ask(engine, "dusk", text)
    seconds = time.monotonic() - began
    counted = {reason: count - lost.get(reason, 0) for reason, count in lost_chunks(engine, "dusk").items()}
    counted = {reason: count for reason, count in counted.items() if count}
    print(f"\n| {fault} | 200, the same answer | {cached} of {WHOLE} | {seconds:.1f} s | {counted or ''} |")
    assert reported == answer
    return cached, counted


def changed(path):
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)


def truncated(path):
    os.truncate(path, 100)


def unreadable(path):
    """A link to itself can't be opened."""
    path.unlink()
    path.symlink_to(path)


def hung(path):
    """A reader of the file waits until it is released."""
    path.unlink()
    os.mkfifo(path)


def let_go(path):
    """Releases readers of the file; later readers find no file.

    The file is removed while it is open: otherwise a reader that opens it in between would wait for ever.
    """
    try:
        opened = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError:
        # The zone's files are removed meanwhile.
        return
    path.unlink(missing_ok=True)
    os.close(opened)


@contextmanager
def hanging(files):
    """A reader of one of the files waits until this block ends, with or without an error."""
    try:
        for path in files:
            hung(path)
        yield
    finally:
        for path in files:
            let_go(path)


@pytest.mark.parametrize(
    ("fault", "harm", "reason"),
    [
        ("a file vanished", lambda path: path.unlink(), "vanished"),
        ("a file was changed", changed, "corrupt"),
        ("a file was cut off", truncated, "corrupt"),
        ("reads end with errors", unreadable, "read"),
    ],
)
def test_what_the_disk_lost_is_computed(tiered, kept, fault, harm, reason):
    text, answer, files = kept
    for path in files:
        harm(path)
    cached, counted = again(tiered, fault, text, answer)
    assert cached <= BLOCK_TOKENS
    assert counted.keys() == {reason}
    tiered.wait(lambda: recovers(tiered), "the disk is asked again", 60)


def test_files_that_were_swapped_are_not_taken_for_each_other(tiered, kept):
    text, answer, files = kept
    contents = [path.read_bytes() for path in files]
    for path, content in zip(files, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    cached, counted = again(tiered, "files were swapped", text, answer)
    assert cached <= BLOCK_TOKENS
    assert counted.keys() == {"corrupt"}


def test_another_tenants_files_are_not_taken_for_its_own(tiered, kept, root):
    text, answer, files = kept
    _, _, foreign = stored_files(tiered, root, "burst", "foreign")
    for path, other in zip(files, foreign, strict=True):
        path.write_bytes(other.read_bytes())
    cached, counted = again(tiered, "another tenant's files in their place", text, answer)
    assert cached <= BLOCK_TOKENS
    assert counted.keys() == {"corrupt"}


def test_who_asks_waits_for_a_slow_disk_as_long_as_it_may_and_no_longer(tiered, kept):
    text, answer, files = kept
    with ThreadPoolExecutor() as pool, hanging(files):
        others = pool.submit(ask, tiered, "acme", prompt("while reads hang"))
        asked = pool.submit(again, tiered, "reads hang", text, answer)
        cached, counted = asked.result(SAFETY_SECONDS)
        others.result(SAFETY_SECONDS)
    assert cached <= BLOCK_TOKENS
    assert counted.keys() == {"late"}
    tiered.wait(lambda: recovers(tiered), "reads are tried again", 60)


def recovers(engine):
    """Whether the disk works again; that shows when something is written and read."""
    text = prompt(f"again {time.monotonic_ns()}")
    offer(engine, "dusk", text)
    leave_to_the_disk(engine)
    ask(engine, "dusk", text)
    return not disk_problem(engine)


def refuses_writes(engine, fault):
    """What happens to a new prompt while nothing can be written."""
    text = prompt(f"unwritten {fault}")
    answer, _ = ask(engine, "dusk", text)
    engine.wait(lambda: disk_problem(engine), "the engine says what the disk fails at")
    problem = disk_problem(engine)
    cached, _ = again(engine, fault, text, answer)
    assert cached == WHOLE, "blocks and memory go on"
    return problem


def test_a_folder_that_takes_no_files_is_named_and_left_alone(tiered, kept, root):
    text, answer, _ = kept
    incoming = root / "incoming"
    incoming.rename(root / "aside")
    incoming.write_text("no folder")
    problem = refuses_writes(tiered, "no file can be made")
    assert "writes fail" in problem
    assert "Not a directory" in problem
    assert again(tiered, "no file can be made: stored chunks", text, answer)[0] == WHOLE
    incoming.unlink()
    (root / "aside").rename(incoming)
    tiered.wait(lambda: recovers(tiered), "it is written again", 60)


@contextmanager
def mounted(*arguments, at):
    subprocess.run(["mount", *arguments, str(at)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True, capture_output=True)


@NEEDS_ROOT
def test_a_full_disk_is_named_and_left_alone(tiered, root):
    with mounted("-t", "tmpfs", "-o", "size=16k", "tmpfs", at=root / "incoming"):
        problem = refuses_writes(tiered, "the disk is full")
    assert "No space left on device" in problem
    tiered.wait(lambda: recovers(tiered), "it is written again", 60)


@NEEDS_ROOT
def test_a_disk_that_is_read_only_is_named_and_left_alone_and_read(tiered, kept, root):
    text, answer, _ = kept
    with mounted("-t", "tmpfs", "-o", "ro", "tmpfs", at=root / "incoming"):
        problem = refuses_writes(tiered, "the disk is read-only")
        assert "Read-only file system" in problem
        assert again(tiered, "the disk is read-only: stored chunks", text, answer)[0] == WHOLE
    tiered.wait(lambda: recovers(tiered), "it is written again", 60)


def test_a_quota_that_is_lowered_under_load_costs_no_request(tiered):
    limited = (TierShare(tier="cpu", limit="10%"), TierShare(tier="disk", limit="2%"))
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, tiered, "dusk", prompt(f"quota {number}")) for number in range(24)]
        tiered.declare(*ZONES[:-1], declare("dusk", after=0.0, tiers=limited))
        answers = [each.result() for each in asked]
    assert len(answers) == 24
    for tier in ("cpu", "disk"):
        tiered.wait(
            lambda tier=tier: in_tier(tiered, "dusk", tier).held_bytes <= in_tier(tiered, "dusk", tier).limit_bytes,
            "the zone holds what it may",
        )
    print(f"\n| a quota is lowered under load | {len(answers)} of {len(answers)} answered 200 | | | |")
    tiered.declare(*ZONES)


def test_a_zone_that_is_deleted_while_it_loads_leaves_nothing_and_its_request_ends(tiered, kept, root):
    text, answer, files = kept
    folder = files[0].parent.parent
    with ThreadPoolExecutor() as pool, hanging(files):
        began = time.monotonic()
        asked = pool.submit(ask, tiered, "dusk", text)
        tiered.wait(lambda: tiered.zone("dusk").waiting_requests, "it waits for the disk")
        tiered.declare(*ZONES[:-1])
        reported, cached = asked.result(SAFETY_SECONDS)
        seconds = time.monotonic() - began
    print(f"\n| its zone is deleted while it loads | 200, the same answer | {cached} of {WHOLE} | {seconds:.1f} s | |")
    assert reported == answer
    tiered.wait(lambda: not folder.exists(), "all of the zone's is gone", 60)
    tiered.declare(*ZONES)
    tiered.wait(lambda: recovers(tiered), "the disk is asked again", 60)
