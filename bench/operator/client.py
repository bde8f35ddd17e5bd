"""The measurements' client of the API server: the operator's REST client, with watches."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from tenantzone_operator.kube.rest import Rest

_LARGEST_LINE = 4 * 2**20
_PAUSE_SECONDS = 0.2


class Client(Rest):
    """The operator's REST client, extended by a watch."""

    async def events(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yields the existing objects of a kind, then the events of a watch."""
        version = "0"
        while True:
            params = {"watch": "true", "resourceVersion": version}
            async with (
                self._used() as session,
                session.client.get(
                    session.server + path,
                    params=params,
                    timeout=aiohttp.ClientTimeout(total=None),
                    read_bufsize=_LARGEST_LINE,
                ) as response,
            ):
                if response.status == 429:
                    # The API server answers 429 while it has only just learned of the kind.
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                response.raise_for_status()
                async for line in response.content:
                    event = json.loads(line)
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event

    async def text(self, path: str) -> str:
        async with self._used() as session, session.client.get(session.server + path) as response:
            response.raise_for_status()
            return await response.text()
