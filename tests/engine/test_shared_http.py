"""Two real engines of a pool and a KV-cache manager: a session begun on one goes on on the other, and fails on none."""

import threading

import pytest

from hack.harness.cache_manager import CacheManagerProcess
from tests.engine.real_engine import StartingEngine
from tests.shared_engine import runs_here
from tests.zones.core import declare

BLOCK_TOKENS, BLOCK_BYTES = 32, 32 * 1024
OBJECT = BLOCK_BYTES + 32
BLOCKS, CHUNKS = 48, 64
SESSION_BLOCKS = 20
TENANTS = ("acme", "burst", "calm", "dusk", "flood")
ZONES = tuple(declare(tenant, after=0.0) for tenant in TENANTS)


@pytest.fixture(scope="module")
def manager(request, tmp_path_factory):
    assert runs_here(request.session) or hasattr(request.config, "workerinput")
    made = CacheManagerProcess(tmp_path_factory.mktemp("manager"), {"engines": "test/pool"}, arguments=("--lease", "2"))
    made.start()
    pools = {"pools": ["test/pool"]}
    made.share(
        {"name": "test.pool", **pools, "total": {"limit": 60 * OBJECT, "watermark": 0.9}},
        *({"name": f"test.pool.{tenant}", **pools, "total": {"limit": 100 * OBJECT}} for tenant in TENANTS[:-1]),
    )
    yield made
    made.kill()


@pytest.fixture(scope="module")
def starting(manager, tmp_path_factory):
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("engines\n")

    def options(address, folder):
        return [
            "--num-gpu-blocks-override", str(BLOCKS + 1), "--max-model-len", str(BLOCKS * BLOCK_TOKENS),
            "--cpu-tier", str(CHUNKS * BLOCK_BYTES), "--manager-url", manager.url, "--manager-token-file", str(token),
        ]  # fmt: skip

    first = StartingEngine(options)
    both = [first, StartingEngine(options, beside=first)]
    yield both
    for each in both:
        each.stop()


@pytest.fixture(scope="module")
def engines(starting):
    engines = [each.await_health() for each in starting]
    for engine in engines:
        engine.add_keys(*TENANTS)
        engine.declare(*ZONES)
    return engines


def prompt(name, blocks=SESSION_BLOCKS):
    """A byte is a token."""
    return (f"{name}: " * 1000)[: blocks * BLOCK_TOKENS + 5]


def ask(engine, tenant, text, tokens=8):
    """What is answered, and how many tokens of the prompt were cached."""
    answer = engine.client(tenant).completions.create(model="tiny", prompt=text, max_tokens=tokens, temperature=0)
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


def stored(manager, tenant):
    """Chunks of a tenant in storages."""
    instances = manager.ask("ListInstances")["instances"]
    mine = [each for each in instances if each["instance"]["name"].startswith(f"{tenant}.")]
    return sum(sum(each["bytes_by_type"].values()) for each in mine) // OBJECT


def in_shared(engine, tenant):
    """What a report says of a tenant's zone in shared storages."""
    return next(each for each in engine.zone(tenant).tiers if each.tier == "shared")


def has_receipt(engine, tenant, purge):
    lines = [line for path in engine.journal_folder.iterdir() for line in path.read_text().splitlines()]
    return any(all(f'"{word}"' in line for word in ("tier_receipt", "shared", tenant, purge)) for line in lines)


def test_a_session_goes_on_on_another_engine(engines, manager):
    first, second = engines
    text, cached = ask(first, "acme", prompt("session"), tokens=64)
    assert cached == 0
    first.wait(lambda: stored(manager, "acme") >= SESSION_BLOCKS + 1, "the session is in the storage")
    longer = prompt("session") + text + " and then"
    told, cached = ask(second, "acme", longer)
    blocks = stored(manager, "acme")
    assert cached >= 0.95 * (SESSION_BLOCKS + 1) * BLOCK_TOKENS
    assert in_shared(second, "acme").hits == cached // BLOCK_TOKENS
    assert told == ask(first, "acme", longer)[0], "it means the same there"
    assert blocks >= SESSION_BLOCKS + 1
    second.wait(lambda: in_shared(second, "acme").held_bytes >= blocks * OBJECT, "the report has what is held")


def test_another_tenant_finds_nothing(engines, manager):
    first, second = engines
    ask(first, "acme", prompt("secret"))
    before = stored(manager, "acme")
    first.wait(lambda: stored(manager, "acme") >= before, "it is stored")
    for engine in engines:
        _, cached = ask(engine, "burst", prompt("secret"))
        assert cached == 0


def test_a_flood_takes_nothing_of_a_zone_with_a_group_of_its_own(engines, manager):
    first, second = engines
    ask(first, "calm", prompt("calm"))
    first.wait(lambda: stored(manager, "calm") == SESSION_BLOCKS, "it is stored")
    for number in range(12):
        ask(first, "flood", prompt(f"flood {number}", 8))
    assert stored(manager, "calm") == SESSION_BLOCKS
    assert stored(manager, "flood") <= 60
    _, cached = ask(second, "calm", prompt("calm"))
    assert cached == SESSION_BLOCKS * BLOCK_TOKENS


def test_a_manager_that_is_killed_under_load_fails_no_request(engines, manager):
    first, second = engines
    stopping, answers, errors = threading.Event(), [], []

    def keep_asking(engine, name):
        number = 0
        while not stopping.is_set():
            number += 1
            try:
                answers.append(ask(engine, "burst", prompt(f"{name} {number % 7}", 6), tokens=4))
            except Exception as error:
                errors.append(error)

    threads = [
        threading.Thread(target=keep_asking, args=(each, name)) for each, name in zip(engines, "ab", strict=True)
    ]
    for thread in threads:
        thread.start()
    first.wait(lambda: len(answers) >= 8, "there is load", seconds=60)
    manager.kill()
    first.wait(lambda: "does not answer" in shared_problem(first), "the engine has noticed", seconds=60)
    dead = len(answers)
    first.wait(lambda: len(answers) >= dead + 8, "requests go on", seconds=60)
    manager.start()
    first.wait(lambda: not shared_problem(first) and not shared_problem(second), "both are well again", seconds=60)
    stopping.set()
    for thread in threads:
        thread.join()
    assert not errors
    ask(first, "acme", prompt("after"))
    first.wait(lambda: is_found(second, "after"), "what is stored after that is found", seconds=60)


def shared_problem(engine):
    return next(each for each in engine.report().tiers if each.tier == "shared").problem


def is_found(engine, name):
    _, cached = ask(engine, "acme", prompt(name))
    return cached >= 0.95 * SESSION_BLOCKS * BLOCK_TOKENS


def test_a_purge_reaches_the_storages_and_gives_a_receipt(engines, manager):
    first, second = engines
    ask(first, "dusk", prompt("dusk"))
    first.wait(lambda: stored(manager, "dusk") == SESSION_BLOCKS, "it is stored")
    for engine in engines:
        engine.declare(*(zone for zone in ZONES if zone.tenant != "dusk"), declare("dusk", purge="once", after=0.0))
    first.wait(lambda: has_receipt(first, "dusk", "once"), "the journal has the receipt", seconds=60)
    assert stored(manager, "dusk") == 0
    _, cached = ask(second, "dusk", prompt("dusk"))
    assert cached == 0


def test_what_an_engine_that_is_killed_has_written_another_one_finds(engines, starting, manager):
    first, second = engines
    text, _ = ask(first, "calm", prompt("survivor"))
    first.wait(lambda: stored(manager, "calm") >= 2 * SESSION_BLOCKS, "it is stored")
    starting[0].kill()
    assert ask(second, "calm", prompt("survivor")) == (text, SESSION_BLOCKS * BLOCK_TOKENS)
