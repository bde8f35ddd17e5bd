"""Engines are polled while a browser views the page; over real HTTP."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from itertools import count

import pytest
from aiohttp import web
from msgspec import structs

from tenantzone_contract.reports.report import ConfigStatus, dump_report
from tenantzone_operator.console.live import FRESH_SECONDS, LiveEngines, NotThereError
from tenantzone_operator.engines.watch import FROZEN_SECONDS, SILENCE_SECONDS
from tenantzone_operator.kube.resources import Pod, Pool, read_pod
from tenantzone_operator.kube.store import InformerCache, Store
from tests.console.served import no_pods, no_tokens
from tests.operator.objects import body, registered, report, zone_report

KEY = ("default", "demo")
POD = body(
    "engine-0",
    metadata={"labels": {"app": "vllm"}},
    status={"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
)
_published = count(1)


class Engine:
    """An admin port that counts its requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.status = 200
        self.is_frozen = False
        self.port = 0
        self.held = 5

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        zones = (registered("stray"), zone_report("acme", cached=self.held))
        reported = report("engine-0", 100, ConfigStatus(), zones)
        if not self.is_frozen:
            reported = structs.replace(reported, published_unix_time=float(next(_published)))
        return web.Response(body=dump_report(reported), status=self.status)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_get("/report", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
def store(engine: Engine) -> Store:
    made = Store()
    labels = {"app": "vllm"}
    made.pools.put(body("demo", spec={"selector": {"matchLabels": labels}, "adminPort": engine.port}))
    made.pods[KEY] = InformerCache(read_pod)
    made.pods[KEY].put(POD)
    return made


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_however_many_look_each_engine_is_asked_once(engine: Engine, store: Store):
    clock = Clock()
    live = LiveEngines(store, no_pods, no_tokens, clock)
    assert engine.asked == 0
    await asyncio.gather(*(live.engines(KEY) for _ in range(20)))
    assert engine.asked == 1
    clock.now += 100 * FRESH_SECONDS
    await asyncio.gather(*(live.engines(KEY) for _ in range(20)))
    assert engine.asked == 2


async def test_what_declared_zones_hold_is_known_while_the_page_is_viewed(engine: Engine, store: Store):
    clock = Clock()
    live = LiveEngines(store, no_pods, no_tokens, clock)
    assert live.held(KEY) is None
    await live.engines(KEY)
    assert live.held(KEY) == {"acme": 5}
    clock.now += 60
    assert live.held(KEY) is None


async def test_one_late_answer_is_forgiven_and_silence_is_not(engine: Engine, store: Store):
    clock = Clock()
    live = LiveEngines(store, no_pods, no_tokens, clock)
    await live.engines(KEY)
    engine.status = 500
    clock.now += SILENCE_SECONDS - 0.5
    (seen,) = await live.engines(KEY)
    assert seen.report is not None
    clock.now += 60
    (seen,) = await live.engines(KEY)
    assert (seen.report, seen.error) == (None, "/report answers with status 500")


async def test_an_engine_that_repeats_itself_hangs(engine: Engine, store: Store):
    clock = Clock()
    live = LiveEngines(store, no_pods, no_tokens, clock)
    engine.is_frozen = True
    await live.engines(KEY)
    clock.now += FROZEN_SECONDS + 1
    (seen,) = await live.engines(KEY)
    assert seen.report is None
    assert "the engine hangs" in seen.error


async def test_pools_without_viewers_are_forgotten(engine: Engine, store: Store):
    live = LiveEngines(store, no_pods, no_tokens)
    await live.engines(KEY)
    for number in range(4):
        await live.engines(("default", f"other-{number}"))
    assert live.held(KEY) is None


async def test_what_was_heard_is_let_go_without_viewers(engine: Engine, store: Store):
    clock = Clock()
    live = LiveEngines(store, no_pods, no_tokens, clock)
    (seen,) = await live.engines(KEY)
    left = weakref.ref(seen)
    live.forget_unseen()
    assert left() is not None
    clock.now += 60
    live.forget_unseen()
    assert live.held(KEY) is None
    del seen
    gc.collect()
    assert left() is None


@pytest.mark.parametrize(("key", "pod"), [(("default", "missing"), "engine-0"), (KEY, "engine-1")])
async def test_only_engines_of_the_pool_are_asked_for_pictures(store: Store, key: tuple[str, str], pod: str):
    with pytest.raises(NotThereError, match=pod):
        await LiveEngines(store, no_pods, no_tokens).block_map(key, pod, 10)


async def test_a_replica_that_watches_no_pods_asks_for_them(engine: Engine, store: Store):
    del store.pods[KEY]
    unready = body("engine-1", metadata=POD["metadata"] | {"name": "engine-1", "uid": "uid-engine-1"})
    there = [POD, unready]
    asked: list[str] = []

    async def list_pods(pool: Pool) -> list[Pod]:
        asked.append(pool.meta.name)
        if not there:
            raise TimeoutError
        return [read_pod(each) for each in there]

    clock = Clock()
    live = LiveEngines(store, list_pods, no_tokens, clock)
    assert live.view(KEY).pods == []
    (seen,) = await live.engines(KEY)
    assert seen.report is not None
    assert [pod.meta.name for pod in live.view(KEY).pods] == ["engine-0", "engine-1"]
    assert asked == ["demo"]

    there.clear()
    clock.now += 100 * FRESH_SECONDS
    (seen,) = await live.engines(KEY)
    assert seen.report is not None, "an API server that is away takes no engine away"
