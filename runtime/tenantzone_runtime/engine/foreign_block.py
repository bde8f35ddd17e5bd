"""The error of a request with a block of another zone, which must never happen and is looked for all the same."""

from tenantzone_runtime.zones.zone import Zone


class ForeignBlockError(RuntimeError):
    """A request was about to use a block of another zone, and must never be served."""

    def __init__(self, block_id: int, zone: Zone | None) -> None:
        name = "no zone" if zone is None else f"zone {zone.spec.tenant}"
        super().__init__(f"block {block_id} does not belong to {name}")
        self.block_id = block_id
