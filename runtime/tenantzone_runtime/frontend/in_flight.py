"""In-flight quota: limits the number of in-flight requests of each tenant, and the bytes of their bodies."""

import asyncio
from dataclasses import dataclass, field
from math import ceil

from tenantzone_runtime.frontend.body.limiter import Limiter
from tenantzone_runtime.frontend.body.media import AllMedia, MediaUse, TenantMedia
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.settings import Bounds

_LATER = {"retry-after": "1", "connection": "close"}

_ROOM = 16
"""Maximum number of prompts of one tenant, or equivalent work, that are prepared for the engine at the same time. A few
prompts suffice to keep vLLM's thread busy. More would start on the event loop at once, and block it."""
_BYTES_OF_WEIGHT = 64 * 2**10
"""Number of bytes of a body that need as much preparation as one prompt."""


@dataclass(slots=True)
class _Tenant:
    media: TenantMedia
    requests: int = 0
    size: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    limiter: Limiter = field(default_factory=lambda: Limiter(_ROOM))


class InFlight:
    """Counts the in-flight requests of all tenants, and refuses requests above the limits.

    Args:
        bounds: the settings with the limits of each tenant, and of all tenants together.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._tenants: dict[str, _Tenant] = {}
        self._media = AllMedia(bounds)
        self.size = 0
        """Number of bytes of the bodies of all in-flight requests."""

    def admit(self, name: str) -> "Held":
        """Count a request as in flight, until `Held.let_go` is called.

        Args:
            name: the name of the request's tenant.

        Raises:
            Refusal: the tenant has too many in-flight requests.
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
        """Delete the state of a tenant if the tenant has no in-flight requests."""
        if not self._tenants[name].requests:
            del self._tenants[name]


class Held:
    """One request that counts as in flight until `let_go` is called.

    Args:
        all: the in-flight requests of all tenants.
        name: the name of the request's tenant.
        tenant: the state of the request's tenant.
        bounds: the settings with the limits of each tenant, and of all tenants together.
    """

    def __init__(self, all: InFlight, name: str, tenant: _Tenant, bounds: Bounds) -> None:
        self._all = all
        self._name = name
        self._tenant = tenant
        self._bounds = bounds
        self._requests = 0
        self._size = 0
        self._weight = 0
        """Weight of the request while it is being prepared for the engine; otherwise 0."""
        self.media = MediaUse(bounds, tenant.media)
        """The request's use of memory for images, sounds and videos."""

    @property
    def turn(self) -> asyncio.Lock:
        """The lock to hold while a large body of the tenant is checked, so that other tenants get their turn."""
        return self._tenant.turn

    def count(self, requests: int) -> None:
        """Count ``requests`` more engine requests of the tenant.

        Raises:
            Refusal: the tenant has too many in-flight requests.
        """
        if self._tenant.requests + requests > self._bounds.max_tenant_requests:
            raise Refusal(
                429,
                "tenant_requests",
                f"This tenant has {self._tenant.requests} requests in progress; wait until some requests end",
                headers=_LATER,
            )
        self._requests += requests
        self._tenant.requests += requests

    async def make_ready(self) -> None:
        """Wait until the request may be prepared for the engine.

        A single vLLM thread prepares the requests of all tenants. So each tenant may have only a limited amount of work
        queued on this thread ahead of another tenant's request.
        """
        weight = max(self._requests, ceil(self._size / _BYTES_OF_WEIGHT))
        await self._tenant.limiter.enter(weight)
        self._weight = weight

    def is_ready(self) -> None:
        """Record that the request is prepared or has ended, and release its media's memory. May be called twice."""
        weight, self._weight = self._weight, 0
        if weight:
            self._tenant.limiter.leave(weight)
        self.media.leave()

    def add(self, size: int) -> None:
        """Count ``size`` more bytes of the body.

        Raises:
            Refusal: the bodies of the tenant, or of all tenants together, have too many bytes.
        """
        if self._tenant.size + size > self._bounds.max_tenant_body_bytes:
            raise Refusal(
                429,
                "tenant_bodies",
                "This tenant's requests in progress have too many bytes; wait until some requests end",
                headers=_LATER,
            )
        if self._all.size + size > self._bounds.max_held_body_bytes:
            raise Refusal(
                503, "all_bodies", "This server's memory for request bodies is full; try again later", headers=_LATER
            )
        self._size += size
        self._tenant.size += size
        self._all.size += size

    def let_go(self) -> None:
        """Stop counting the request as in flight, and release everything that it holds."""
        self.is_ready()
        self._tenant.requests -= self._requests
        self._tenant.size -= self._size
        self._all.size -= self._size
        self._all.forget(self._name)
