"""Leader election by a Lease of the API group ``coordination.k8s.io``.

The rules are those of client-go's leader election. No two clocks are ever compared:

- The leader stops ``renew_deadline`` after it *began* its last successful renewal.
- The others wait for ``lease_seconds`` after they *saw* the last renewal, each by its own clock. They see a renewal
  after it began, so the leader has stopped ``lease_seconds - renew_deadline`` before another process may begin.
- Of several writes to one version of the Lease, the API server accepts one.

kubernetes_asyncio has an election, too. It compares the time of day, never hands over, and waits for requests forever.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tenantzone_contract.specs import Body
from tenantzone_operator.kube.names import FIELD_MANAGER
from tenantzone_operator.kube.rest import Rest, RestError

_MAX_LEASES = 4
"""A Lease that claims to last longer than this multiple of the own duration was edited by hand."""

_MAX_TRANSITIONS = 2**31 - 1
"""The API server refuses a Lease with a greater number."""


def elapsed_seconds() -> float:
    """Returns the seconds of a clock that is never set and that continues while the machine sleeps."""
    # Only Linux has this clock; elsewhere the monotonic clock is the best choice.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of the leader election, in seconds.

    Raises:
        ValueError: with these times two processes could lead at once, or one could not keep the Lease.
    """

    lease_seconds: int = 15
    """How long the others wait after the last renewal that they saw; the Lease's own field is a whole number."""
    renew_deadline: float = 10.0
    """How long a leader continues without a renewal."""
    retry: float = 2.0
    """The time between two renewals. The others check four times as often."""

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry <= self.renew_deadline < self.lease_seconds:
            raise ValueError("the lease must last longer than the renew deadline, and that at least two retry periods")


class LeaseObject:
    """The Lease as an object in the API."""

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
        """Replace the version of the Lease that was read before, or create the Lease.

        Raises:
            RestError: with status 409 or 404, the Lease has changed.
        """
        params = {"fieldManager": FIELD_MANAGER}
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
    """One process's part in the leader election, for use by one task.

    Args:
        lease: the Lease that the processes compete for.
        identity: the identity of this process, which no other or later process has.
        timing: the times of the election.
        clock: returns the seconds of a clock that is never set.
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
        """The Lease's spec when it was last seen, also after the Lease was deleted."""
        self._seen_at = clock()
        self._leads_until = float("-inf")
        self.answered_at = float("-inf")
        """When the API server last answered a request for the Lease."""

    @property
    def remaining_seconds(self) -> float:
        """Seconds for which this process leads without another renewal; it does not lead if they are not positive."""
        return self._leads_until - self._clock()

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self.remaining_seconds > 0

    @property
    def holder(self) -> str:
        """The identity of the Lease's holder when it was last seen; empty if it had none."""
        return str(self._spec.get("holderIdentity") or "")

    @property
    def silence_seconds(self) -> float:
        """The seconds since the API server last answered."""
        return self._clock() - self.answered_at

    async def attempt(self) -> bool:
        """Take the Lease if it is free, or renew it if this process holds it; returns whether this process holds it.

        Raises:
            RestError: the API server refused.
            aiohttp.ClientError, TimeoutError: it did not answer.
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
            return False  # another process was faster
        self._leads_until = began + self.timing.renew_deadline
        return True

    def step_down(self) -> None:
        """Stop leading, whatever the Lease says."""
        self._leads_until = float("-inf")

    async def release(self) -> None:
        """Release the Lease if this process holds it, so that the next process can take it at once.

        Raises:
            RestError: the API server refused.
            aiohttp.ClientError, TimeoutError: it did not answer.
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
            # No process ever held it; or it was deleted, and its holder may not have noticed yet.
            lasts, is_free = self.timing.lease_seconds, not self._spec or self.is_leading
        else:
            # Other replicas may have other flags; but a Lease that lasts for hours comes from no flag.
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
            # The API server would refuse a greater number each time, and no replica could lead.
            claim["leaseTransitions"] = known + 1 if known < _MAX_TRANSITIONS else 0
        return claim

    async def _read(self) -> None:
        try:
            self._see(await self._lease.read())
        except RestError:
            self.answered_at = self._clock()
            raise

    async def _write(self, changes: Body) -> None:
        # Until a write succeeds, the state of the Lease is unknown.
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
    """Returns the time of day as the Lease shows it; the API server requires all six digits."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
