"""The end of leadership: whatever the workers were doing, none is left, and none begins."""

import asyncio
import itertools

import kopf
from aiohttp import web

from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.rest import Rest
from tenantzone_operator.kube.store import Store
from tenantzone_operator.pool.reconcile import Reconciler
from tests.operator.objects import body


async def test_a_worker_that_is_about_to_try_again_is_followed_by_none():
    asked = itertools.count(1)
    is_asked_often = asyncio.Event()

    async def refuse(_: web.Request) -> web.Response:
        if next(asked) == 10:
            is_asked_often.set()
        return web.json_response({"message": "away"}, status=503)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()

    async def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=f"http://127.0.0.1:{runner.addresses[0][1]}")

    store = Store()
    for number in range(5):
        store.zones.put(body(f"zone-{number}", spec={"pool": f"pool-{number}"}))
    async with Rest(log_in) as rest:
        api = Api(rest, None)
        reconciler = Reconciler(store, api, AdminKey(api, "tenantzone-system"))
        async with reconciler.leading(lambda: asyncio.sleep(0)), asyncio.timeout(20):
            await is_asked_often.wait()

        reconciler.mark(("default", "pool-0"))
        reconciler.check_all()

        ours = ("pool ", "engines of ", "config of ", "pods of ", "events")
        await asyncio.sleep(0)
        left = {task.get_name() for task in asyncio.all_tasks() if not task.done()}
        assert not [name for name in left if name.startswith(ours)]
    await runner.cleanup()
