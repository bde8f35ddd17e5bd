"""Leader election by a Lease of the API group ``coordination.k8s.io``.

The rules are the same as in client-go's leader election. They never compare two clocks:

- The leader stops ``renew_deadline`` seconds after it *began* its last successful renewal.
- Each other process waits, by its own clock, for ``lease_seconds`` after it *saw* the last renewal. A process sees a
  renewal after the renewal began, so the leader stops at least ``lease_seconds - renew_deadline`` seconds before
  another process may lead.
- Of several writes to the same version of the Lease, the API server accepts only one.

The leader election in kubernetes_asyncio compares wall clocks, never releases the Lease, and has no request timeout.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tenantzone_contract.kube_names import OPERATOR
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.rest import Rest, RestError

_MAX_LEASES = 4
"""Maximum duration of a Lease, as a multiple of this process's setting. A longer one must have been edited by hand."""

_MAX_TRANSITIONS = 2**31 - 1
"""Maximum value of ``leaseTransitions`` that the API server accepts."""


def elapsed_seconds() -> float:
    """Returns the time of a monotonic clock that continues while the machine is suspended, in seconds."""
    # Only Linux has CLOCK_BOOTTIME. Elsewhere, the monotonic clock is the best choice.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations of the leader election, in seconds.

    Raises:
        ValueError: with these times, two processes could lead at the same time, or a leader could not keep the Lease.
    """

    lease_seconds: int = 15
    """Seconds that a standby waits after the last renewal that it saw; an integer, as the field in the Lease."""
    renew_deadline: float = 10.0
    """A leader stops this number of seconds after the start of its last successful renewal."""
    retry: float = 2.0
    """Seconds between two renewals. A standby checks the Lease four times as often."""

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry <= self.renew_deadline < self.lease_seconds:
            raise ValueError(
                "the lease duration must exceed the renew deadline, and the renew deadline must be at least twice the "
                "retry period"
            )


class LeaseObject:
    """The Lease object at the API server."""

    def __init__(self, rest: Rest, namespace: str, name: str) -> None:
        self._rest = rest
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.namespace, self.name = namespace, name

    async def read(self) -> Body | None:
        try:
            return await self._rest.call("GET", f"{self._collection}/{self.name}")
        except RestError as error:
            if error.status == 404:
                return None
            raise

    async def write(self, before: Body | None, spec: Body) -> Body:
        """Replace the given version of the Lease; None creates the Lease.

        Raises:
            RestError: the request failed. Status 409 or 404 means that another process has changed the Lease.
        """
        params = {"fieldManager": OPERATOR}
        if before is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name},
                "spec": spec,
            }
            return await self._rest.call("POST", self._collection, body=body, params=params)
        body = {**before, "spec": spec}
        path = f"{self._collection}/{self.name}"
        return await self._rest.call("PUT", path, body=body, params=params)


class Election:
    """One process's part in the leader election. Only one task may use it at a time.

    Args:
        lease: the Lease that the processes compete for.
        identity: the unique identity of this process.
        timing: the times of the election.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, lease: LeaseObject, identity: str, timing: Timing, clock: Callable[[], float] = elapsed_seconds
    ) -> None:
        self._lease = lease
        self._identity = identity
        self.timing = timing
        self._clock = clock
        self._found: Body | None = None
        self._is_known = False
        self._spec: Body = {}
        """Last known spec of the Lease, even after the Lease was deleted."""
        self._seen_at = clock()
        self._leads_until = float("-inf")
        self.answered_at = float("-inf")
        """Time of the API server's last answer to a request for the Lease."""

    @property
    def remaining_seconds(self) -> float:
        """Seconds for which this process may still lead without another renewal; 0 or less if it does not lead."""
        return self._leads_until - self._clock()

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self.remaining_seconds > 0

    @property
    def holder(self) -> str:
        """Last known holder of the Lease; empty if it had no holder."""
        return str(self._spec.get("holderIdentity") or "")

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last answered a request for the Lease."""
        return self._clock() - self.answered_at

    async def attempt(self) -> bool:
        """Acquire or renew the Lease unless another process holds it; return whether this process holds the Lease.

        Raises:
            RestError: the API server refused a request.
            aiohttp.ClientError, TimeoutError: the API server did not answer.
        """
        began = self._clock()
        if not (self._is_known and self.holder == self._identity):
            await self._read()
        if self._is_anothers():
            self.step_down()
            return False
        try:
            await self._write(self._claim())
        except RestError as error:
            if error.status not in (404, 409):
                raise
            return False  # Another process has written the Lease first.
        self._leads_until = began + self.timing.renew_deadline
        return True

    def step_down(self) -> None:
        """Stop leading at once, without a request to the API server."""
        self._leads_until = float("-inf")

    async def release(self) -> None:
        """Release the Lease if this process holds it, so that another process can acquire the Lease at once.

        Raises:
            RestError: the API server refused a request.
            aiohttp.ClientError, TimeoutError: the API server did not answer.
        """
        self.step_down()
        if not self._is_known:
            await self._read()
        if self._found is not None and self.holder == self._identity:
            now = _now()
            await self._write({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now})

    def _is_anothers(self) -> bool:
        """Returns whether another process may be leading."""
        if self._found is None:
            # Either no process has ever held the Lease, or the Lease was deleted, and its holder may not know this yet.
            lasts, is_free = self.timing.lease_seconds, not self._spec or self.is_leading
        else:
            # Other replicas may have other flags, so use the duration in the Lease, but only up to a maximum.
            asked = self._spec.get("leaseDurationSeconds") or self.timing.lease_seconds
            lasts = min(asked, _MAX_LEASES * self.timing.lease_seconds)
            is_free = self.holder in ("", self._identity)
        return not is_free and self._clock() <= self._seen_at + lasts

    def _claim(self) -> dict[str, Any]:
        now = _now()
        claim = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self.timing.lease_seconds,
            "renewTime": now,
        }
        if self.holder != self._identity:
            claim["acquireTime"] = now
            known = self._spec.get("leaseTransitions", -1)
            # Start again at 0, because the API server would refuse a greater number, and no replica could lead.
            claim["leaseTransitions"] = known + 1 if known < _MAX_TRANSITIONS else 0
        return claim

    async def _read(self) -> None:
        try:
            self._see(await self._lease.read())
        except RestError:
            self.answered_at = self._clock()
            raise

    async def _write(self, changes: Body) -> None:
        # Until the write succeeds, this process does not know the state of the Lease.
        self._is_known = False
        try:
            self._see(await self._lease.write(self._found, {**self._spec, **changes}))
        except RestError:
            self.answered_at = self._clock()
            raise

    def _see(self, found: Body | None) -> None:
        self.answered_at = self._clock()
        is_deleted = found is None and self._found is not None
        spec = (found.get("spec") or {}) if found is not None else self._spec
        if is_deleted or spec != self._spec:
            self._seen_at = self.answered_at
        self._found, self._spec, self._is_known = found, spec, True


def _now() -> str:
    """Returns the current time in the Lease's format, with the six fractional digits that the API server requires."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
