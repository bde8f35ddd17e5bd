"""What the API server holds for each tenant: how many requests are under way, and the bytes of their bodies."""

import asyncio
from dataclasses import dataclass, field
from math import ceil

from tenantzone_runtime.door.answers import Refusal
from tenantzone_runtime.door.gate import Gate
from tenantzone_runtime.door.media import AllMedia, MediaUse, TenantMedia
from tenantzone_runtime.settings import Bounds

_LATER = {"retry-after": "1", "connection": "close"}

_ROOM = 16
"""Prompts, or as much, of one tenant that are being made ready for the engine at a time. A few keep vLLM's thread at
work; what becomes ready at once is begun at once, on the event loop."""
_BYTES_OF_WEIGHT = 64 * 2**10
"""So many bytes of a body are as much work as one prompt."""


@dataclass(slots=True)
class _Tenant:
    media: TenantMedia
    requests: int = 0
    size: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    gate: Gate = field(default_factory=lambda: Gate(_ROOM))


class Holdings:
    """The requests under way of all tenants, within bounds.

    Args:
        bounds: of each tenant and of all.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._tenants: dict[str, _Tenant] = {}
        self._media = AllMedia(bounds)
        self.size = 0
        """Bytes, of all tenants."""

    def admit(self, name: str) -> "Held":
        """Begin to hold a request of a tenant.

        Raises:
            Refusal: the tenant has too many.
        """
        if name not in self._tenants:
            self._tenants[name] = _Tenant(TenantMedia(self._media))
        held = Held(self, name, self._tenants[name], self._bounds)
        try:
            held.count(1)
        except Refusal:
            self.forget(name)
            raise
        return held

    def forget(self, name: str) -> None:
        """Keep nothing of a tenant that has no request."""
        if not self._tenants[name].requests:
            del self._tenants[name]


class Held:
    """One request that is held, until it is let go.

    Args:
        all: it belongs to these.
        name: of its tenant.
        tenant: its tenant's.
        bounds: of each tenant and of all.
    """

    def __init__(self, all: Holdings, name: str, tenant: _Tenant, bounds: Bounds) -> None:
        self._all = all
        self._name = name
        self._tenant = tenant
        self._bounds = bounds
        self._requests = 0
        self._size = 0
        self._weight = 0
        """Of what is being made ready of it."""
        self.media = MediaUse(bounds, tenant.media)
        """What its images, sounds and videos come to."""

    @property
    def turn(self) -> asyncio.Lock:
        """Whoever works on a large body of the tenant's holds it: one at a time, so that other tenants' are between."""
        return self._tenant.turn

    def count(self, requests: int) -> None:
        """Hold so many requests of the engine more.

        Raises:
            Refusal: the tenant has too many.
        """
        if self._tenant.requests + requests > self._bounds.max_tenant_requests:
            raise Refusal(
                429,
                "tenant_requests",
                f"This API key's tenant has {self._tenant.requests} requests under way; wait for some of them to end",
                headers=_LATER,
            )
        self._requests += requests
        self._tenant.requests += requests

    async def make_ready(self) -> None:
        """Wait until the request may be made ready for the engine, which all tenants' are on one thread of vLLM's.

        So of each tenant there is at most so much before another one's request.
        """
        weight = max(self._requests, ceil(self._size / _BYTES_OF_WEIGHT))
        await self._tenant.gate.enter(weight)
        self._weight = weight

    def is_ready(self) -> None:
        """Say that the request is ready, or has ended; its media need no memory here then. Harmless if said before."""
        weight, self._weight = self._weight, 0
        if weight:
            self._tenant.gate.leave(weight)
        self.media.leave()

    def add(self, size: int) -> None:
        """Hold so many bytes more.

        Raises:
            Refusal: the tenant, or all together, have too many.
        """
        if self._tenant.size + size > self._bounds.max_tenant_body_bytes:
            raise Refusal(
                429,
                "tenant_bodies",
                "This API key's tenant has too many bytes of requests under way; wait for some of them to end",
                headers=_LATER,
            )
        if self._all.size + size > self._bounds.max_held_body_bytes:
            raise Refusal(
                503, "all_bodies", "This server holds as much of requests as it can; try again", headers=_LATER
            )
        self._size += size
        self._tenant.size += size
        self._all.size += size

    def let_go(self) -> None:
        """Hold nothing of the request any more."""
        self.is_ready()
        self._tenant.requests -= self._requests
        self._tenant.size -= self._size
        self._all.size -= self._size
        self._all.forget(self._name)
