"""Clients that hang up, on each route, at each point of a request: the server keeps nothing of them."""

import asyncio
import json
from contextlib import suppress

import psutil
import pytest

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.frontend.routes import ROUTES, WEBSOCKET
from tests.engine.real_engine import API_PORT, RealEngine
from tests.frontend.fuzzing.client import reset_when_closed
from tests.waiting import await_that

pytestmark = pytest.mark.engine

CLIENTS = 1000
AT_ONCE = 100
SPARE_FILES = 4
"""Connections of the test itself that come and go."""
MESSAGES = [{"role": "user", "content": "Tell me a long story. " * 20}]
BODY = json.dumps(
    {
        **{"model": "tiny", "prompt": "Once upon a time " * 20, "messages": MESSAGES, "input": MESSAGES},
        **{"max_tokens": 3000, "max_output_tokens": 3000, "ignore_eos": True, "stream": True, "tokens": [1, 2, 3]},
    }
).encode()


def request_of(method: str, path: str) -> tuple[bytes, bytes]:
    """The request's head and body."""
    head = f"{method} {path} HTTP/1.1\r\nHost: engine\r\nAuthorization: Bearer key-of-acme\r\n"
    body = BODY if method == "POST" else b""
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode(), body


async def hang_up(engine: RealEngine, number: int, places: asyncio.Semaphore) -> None:
    """Begins a request, and leaves within the head, within the body, right after it, or after the first bytes."""
    routes = [route for route in ROUTES if route.method != WEBSOCKET]
    route = routes[number % len(routes)]
    head, body = request_of(route.method, route.path)
    way = number // len(routes) % 4
    sent = (head[: len(head) // 2], head + body[: len(body) // 2], head + body, head + body)[way]
    async with places:
        reader, writer = await asyncio.open_connection(engine.address, API_PORT)
        with suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()
            if way == 3:
                await reader.read(100)
        if number % 2:
            reset_when_closed(writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def test_nothing_is_left_of_a_thousand_clients_that_hang_up(engine: RealEngine):
    engine.declare(ZoneConfig(name="acme", tenant="acme", generation=1))
    server = psutil.Process(engine.pid)
    before = server.num_fds()

    async def hang_up_all() -> None:
        places = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(hang_up(engine, number, places) for number in range(CLIENTS)))

    asyncio.run(hang_up_all())
    await_that(lambda: engine.zone("acme").in_use == 0, "no request uses a block", seconds=120)
    await_that(lambda: server.num_fds() <= before + SPARE_FILES, "no connection is left", seconds=60)
    answer = engine.client("acme").completions.create(model="tiny", prompt="hello", max_tokens=1)
    assert answer.choices
