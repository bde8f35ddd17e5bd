"""The error of a request that has a block of another zone. It must never happen, but is checked for."""

from tenantzone_runtime.zones.zone import Zone


class ForeignBlockError(RuntimeError):
    """A request was about to use a block of another zone; the request must never be served."""

    def __init__(self, block_id: int, zone: Zone | None) -> None:
        name = "no zone" if zone is None else f"zone {zone.spec.tenant}"
        super().__init__(f"block {block_id} does not belong to {name}")
        self.block_id = block_id
