"""Exceptions for requests that must not be served."""

from tenantzone_runtime.zones.audit.events import RefusalReason
from tenantzone_runtime.zones.model.zone import Zone


class BindingError(Exception):
    """A request can't be bound to a zone, so the engine must not serve it."""

    def __init__(
        self,
        reason: RefusalReason,
        tenant: str | None,
        message: str,
        retry_after: int | None = None,
        closed_seconds: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.tenant = tenant
        """Verified tenant of the request, or None if it is unknown."""
        self.retry_after = retry_after
        """Whole seconds after which a retry may succeed, or None if that is unknown."""
        self.closed_seconds = closed_seconds
        """Seconds for which other requests of the tenant would be refused as well."""


class ForeignBlockError(RuntimeError):
    """A request was about to use a block of another zone, which would be a bug in the engine."""

    def __init__(self, block_id: int, zone: Zone | None) -> None:
        problem = "belongs to a zone" if zone is None else f"does not belong to zone {zone.spec.tenant}"
        super().__init__(f"block {block_id} {problem}")
        self.block_id = block_id
