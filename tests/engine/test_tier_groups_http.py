"""Tiers of a real engine whose layers see back differently far: loaded content equals what was computed."""

import itertools
import time
from contextlib import contextmanager
from functools import partial

import pytest

from bench.kinds import models
from hack.harness.cache_manager import CacheManagerProcess
from tests.engine.real_engine import StartingEngine
from tests.zones.core import declare

pytestmark = pytest.mark.flagged_engine

BLOCK_TOKENS, WINDOW_BLOCKS = 32, models.WINDOW // 32
PROMPT_BLOCKS = 12
PROMPT_TOKENS = PROMPT_BLOCKS * BLOCK_TOKENS
TENANTS = ("acme", "burst", "flood")


CHUNKS = PROMPT_BLOCKS + 5 * WINDOW_BLOCKS
"""Chunks of a prompt: all blocks of full attention, and the last ones of each window."""


def options(address, folder):
    return ["--num-gpu-blocks-override", "257", "--max-model-len", "1024", "--cpu-tier", "16MiB"]


@contextmanager
def started(options, make_model, manager):
    """An engine with zones of all tenants, a disk, and storages that it would share with others."""

    def with_tiers(address, folder):
        (folder / "token").write_text("engines\n")
        disk = ["--disk-tier", str(folder / "disk"), "--disk-tier-size", "256MiB"]
        shared = ["--manager-url", manager.url, "--manager-token-file", str(folder / "token")]
        return [*options(address, folder), *disk, *shared]

    starting = StartingEngine(with_tiers, make_model=make_model)
    try:
        engine = starting.await_health()
        engine.add_keys(*TENANTS)
        # Quiet as soon as no request is there: what they cache goes first.
        engine.declare(*(declare(tenant, after=0.0) for tenant in TENANTS))
        yield starting
    finally:
        starting.stop()


def started_manager(folder):
    """A manager with one group for the pool, and a folder for its chunks."""
    made = CacheManagerProcess(folder, {"engines": "test/pool"}, arguments=("--lease", "60"))
    made.start()
    made.share({"name": "test.pool", "pools": ["test/pool"]})
    return made


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    made = started_manager(tmp_path_factory.mktemp("manager"))
    yield made
    made.kill()


@pytest.fixture(scope="module")
def starting(manager):
    """An engine with a model of full attention and a window, CPU memory for many prompts, and a disk for more."""
    with started(options, models.gemma3, manager) as starting:
        yield starting


@pytest.fixture
def engine(starting):
    return starting.engine


def prompt(name):
    """A prompt of 12 blocks; a word is a token."""
    numbers = [sum(name.encode()) + 7 * number for number in range(PROMPT_TOKENS + 1)]
    return " ".join(f"w{number * number % 3989}" for number in numbers)


def ask(engine, tenant, text):
    """Returns the answer, and how many tokens of the prompt were cached."""
    answer = engine.client(tenant).completions.create(model="tiny", prompt=text, max_tokens=16, temperature=0)
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


def in_tier(engine, tenant, tier):
    """The report of a tenant's zone in a tier."""
    return next(each for each in engine.zone(tenant).tiers if each.tier == tier)


def stored(engine, name, there, more):
    """Returns a prompt of acme's that is stored whole below CPU memory, and the answer to it.

    On a busy machine, the tier below may be late, and is left alone for a while then.

    Args:
        engine: the engine.
        name: the prompt's name.
        there: returns how much is stored.
        more: what a whole prompt adds to that.
    """
    deadline = time.monotonic() + 120
    for attempt in itertools.count():
        text, before = prompt(f"{name} {attempt}"), there()
        answer, _ = ask(engine, "acme", text)
        until = time.monotonic() + 10
        while there() < before + more and time.monotonic() < until:
            time.sleep(0.1)
        if there() >= before + more:
            return text, answer
        assert time.monotonic() < deadline, "not stored"
    raise AssertionError


def stored_on_disk(engine, name):
    """A prompt of acme's that is whole on the disk, and its answer: all of it is stored there, or nothing."""
    return stored(engine, name, lambda: in_tier(engine, "acme", "disk").held_bytes, 1)


def files(manager):
    """The number of chunks in the manager's storage."""
    return sum(1 for _ in manager.storage.rglob("*.chunk"))


def drive_out(engine, tenant):
    """Floods the engine until a tenant has nothing left in its blocks and in CPU memory."""
    deadline = time.monotonic() + 240
    for number in itertools.count():
        assert time.monotonic() < deadline, "not driven out"
        ask(engine, "flood", prompt(f"deluge {number} of {time.monotonic()}"))
        if not engine.zone(tenant).held and not in_tier(engine, tenant, "cpu").held_bytes:
            return


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_the_blocks_comes_back_as_it_was(engine):
    text, cached = ask(engine, "acme", prompt("acme"))
    assert cached == 0
    for number in range(10):
        ask(engine, "flood", prompt(f"flood {number}"))
    hits = in_tier(engine, "acme", "cpu").hits
    assert ask(engine, "acme", prompt("acme")) == (text, PROMPT_TOKENS)
    assert in_tier(engine, "acme", "cpu").hits - hits == CHUNKS


def test_no_tenant_finds_what_another_stored(engine):
    ask(engine, "acme", prompt("secret"))
    assert ask(engine, "burst", prompt("secret"))[1] == 0


def check_that_it_comes_back_from_the_disk(engine, tokens, chunks):
    """Checks a prompt that a flood evicted from the blocks and from memory."""
    for attempt in range(5):
        text, answer = stored_on_disk(engine, f"below {attempt}")
        drive_out(engine, "acme")
        hits = in_tier(engine, "acme", "disk").hits
        again, cached = ask(engine, "acme", text)
        assert again == answer
        if cached:
            break
    assert cached == tokens
    assert in_tier(engine, "acme", "disk").hits - hits == chunks


@pytest.mark.shows("tiers of several groups")
def test_what_a_flood_drives_out_of_memory_comes_back_from_the_disk_as_it_was(engine):
    check_that_it_comes_back_from_the_disk(engine, PROMPT_TOKENS, CHUNKS)


@pytest.mark.shows("tiers of several groups")
def test_what_an_engine_stored_that_was_killed_is_found_by_the_next(starting):
    text, answer = stored_on_disk(starting.engine, "kept")
    engine = starting.restart()
    engine.wait(lambda: in_tier(engine, "acme", "disk").held_bytes, "the disk is known", 60)
    again, cached = ask(engine, "acme", text)
    assert (again, cached) == (answer, PROMPT_TOKENS)


def check_that_it_comes_back_from_storages(starting, manager, tokens, chunks):
    """The engine that stored the prompt was killed, and its disk lost: the next one is like any other engine."""
    disk = starting.engine.config_folder.parent / "disk"
    for attempt in range(5):
        text, answer = stored(starting.engine, f"elsewhere {attempt}", partial(files, manager), chunks)
        disk.rename(disk.with_name(f"lost {attempt}"))
        engine = starting.restart()
        again, cached = ask(engine, "acme", text)
        assert again == answer
        if cached:
            break
    assert cached == tokens
    assert in_tier(engine, "acme", "shared").hits == chunks
    assert ask(engine, "burst", text)[1] == 0, "another tenant finds nothing of it"


@pytest.mark.shows("tiers of several groups")
def test_what_an_engine_stored_whose_disk_was_lost_another_finds_in_storages(starting, manager):
    check_that_it_comes_back_from_storages(starting, manager, PROMPT_TOKENS, CHUNKS)
