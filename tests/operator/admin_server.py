"""An engine's admin server with answers chosen by a test."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tenantzone_contract.reports.report import dump_report
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_operator.engines.reports import max_report_bytes
from tests.operator.objects import report

MAX_BYTES = max_report_bytes(100, may_register=False)


class Engine:
    """An admin server with answers chosen by a test."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.delay = 0.0
        self.is_chunked = False
        self.port = 0
        self.asked: Counter[str] = Counter()
        """The number of requests, by address."""
        self.body_of: dict[str, bytes] = {}
        """The body to send at an address."""
        self.delay_of: dict[str, float] = {}
        """Seconds before an answer, by address."""

    async def answer(self, request: web.Request) -> web.Response:
        address = str(request.url.host)
        self.asked[address] += 1
        await asyncio.sleep(self.delay_of.get(address, self.delay))
        answer = web.Response(body=self.body_of.get(address, self.body), status=self.status)
        if self.is_chunked:
            answer.enable_chunked_encoding()
        return answer


@asynccontextmanager
async def listening() -> AsyncIterator[Engine]:
    """A server at two addresses, 127.0.0.1 and 127.0.0.2, for as long as the block runs."""
    made = Engine()
    app = web.Application()
    app.router.add_get("/report", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    await web.TCPSite(runner, "127.0.0.2", made.port).start()
    yield made
    await runner.cleanup()


def sent(name: str = "engine-0", blocks: int = 100, *zones: ZoneReport) -> bytes:
    return dump_report(report(name, blocks, zones=zones))
