"""The error for a request that has a block of another zone. This must never happen, but is checked."""

from tenantzone_runtime.zones.zone import Zone


class ForeignBlockError(RuntimeError):
    """A request was about to use a block of another zone, so it must not be served."""

    def __init__(self, block_id: int, zone: Zone | None) -> None:
        name = "no zone" if zone is None else f"zone {zone.spec.tenant}"
        super().__init__(f"block {block_id} does not belong to {name}")
        self.block_id = block_id
