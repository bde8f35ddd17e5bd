"""Random requests to the real engine, the short form of `python -m tests.frontend.fuzzing`."""

import asyncio

import httpx
import pytest

from tenantzone_contract.zone_config.config import ZoneConfig
from tests.engine.real_engine import API_PORT, RealEngine
from tests.frontend.fuzzing.client import Seen, send_each
from tests.frontend.fuzzing.drawn import KEYS, ZONES, draw_batch, draw_pool, first_batch
from tests.frontend.fuzzing.server import tracebacks_in
from tests.waiting import await_that

pytestmark = pytest.mark.engine

CLIENTS = 8
REQUESTS = 60


def test_no_random_request_makes_the_server_fail_print_a_traceback_or_keep_anything(engine: RealEngine):
    pytest.importorskip("schemathesis")
    engine.add_keys(*ZONES)
    engine.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in ZONES))
    url = f"http://{engine.address}:{API_PORT}/openapi.json"
    pool = draw_pool(httpx.get(url, headers=dict(KEYS["acme"]), timeout=60).json(), 1, REQUESTS)
    sendings = [*first_batch(pool, 1), *draw_batch(pool, 1, 1, REQUESTS)]
    logged, seen = len(engine.log.read_text(errors="replace")), Seen()

    async def send_all() -> None:
        waiting = iter(sendings)
        await asyncio.gather(*(send_each(engine.address, API_PORT, waiting, seen) for _ in range(CLIENTS)))

    asyncio.run(send_all())
    assert seen.statuses.total() == len(sendings)
    assert seen.statuses.keys() >= {200, 400, 401}
    assert not seen.violations
    assert not tracebacks_in(engine.log.read_text(errors="replace")[logged:])
    await_that(lambda: not any(zone.in_use for zone in engine.report().zones), "no request uses a block")
