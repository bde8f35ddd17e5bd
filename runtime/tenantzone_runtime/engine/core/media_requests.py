"""Tracks which zones have requests with images, sounds or videos, because these zones share the encoder."""

from collections.abc import Collection

from vllm.v1.request import Request

from tenantzone_runtime.zones.model.zone import Zone


class MediaRequests:
    """Counts, by zone, an engine's waiting and running requests with media."""

    def __init__(self) -> None:
        self._counts: dict[Zone, int] = {}

    @property
    def zones(self) -> Collection[Zone]:
        """The zones that have requests with media."""
        return self._counts.keys()

    def arrived(self, request: Request, zone: Zone) -> None:
        """Record that a request was bound to its zone."""
        if request.mm_features:
            self._counts[zone] = self._counts.get(zone, 0) + 1

    def ended(self, request: Request, zone: Zone) -> None:
        """Record that a request has ended, for any reason."""
        if not request.mm_features:
            return
        self._counts[zone] -= 1
        if not self._counts[zone]:
            del self._counts[zone]
