"""The disk tier of one engine, from what its flags and its pool say."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tenantzone_contract.instance import Instance
from tenantzone_runtime.disk.file_system import FileSystem, LocalFileSystem
from tenantzone_runtime.disk.layout import bytes_on_disk
from tenantzone_runtime.disk.objects import Objects
from tenantzone_runtime.disk.sealing import ZoneSeal
from tenantzone_runtime.disk.tier import DiskSettings, DiskTier
from tenantzone_runtime.zones.hit_shape import HitShape
from tenantzone_runtime.zones.tier import Tier, TransferBounds

BOUNDS: Final = TransferBounds(stores=64, loads=64)
"""Of each zone, unless something else is said."""
SETTINGS: Final = DiskSettings()


def open_disk_tier(
    root: Path,
    capacity_bytes: int,
    chunk_bytes: int,
    *,
    salt_key: Callable[[], bytes],
    instance: Callable[[str], Instance],
    bounds: TransferBounds = BOUNDS,
    settings: DiskSettings = SETTINGS,
    shape: HitShape | None = None,
    file_system: FileSystem | None = None,
    now: float = 0.0,
) -> DiskTier:
    """The disk tier of one engine. It lists what is on the disk beside the caller, and stores nothing before that.

    Args:
        root: a folder for this engine alone; it is made if it is not there.
        capacity_bytes: what its files may take of the disk.
        chunk_bytes: of a chunk in memory.
        salt_key: the pool's, as it is when it is asked for.
        instance: what the chunks of a tenant's zone depend on.
        bounds: of each zone.
        settings: how chunks are moved.
        shape: of a model whose chunks are of use together only; None: each is by itself.
        file_system: where the folder is; None: the operating system's.
        now: the time of a monotonic clock, in seconds.

    Raises:
        ValueError: the folder is not named from the root, or has no room for a single chunk.
    """
    if not root.is_absolute():
        raise ValueError(f"the disk tier's folder must be named from the root, as /data/cache is; {root} is not")

    def seal(tenant: str, purge: str) -> ZoneSeal:
        return ZoneSeal(salt_key(), instance(tenant), purge)

    sealed_bytes = seal("", "").sealed_size(chunk_bytes)
    objects = Objects(root, file_system or LocalFileSystem(), chunk_bytes, sealed_bytes)
    file_bytes = bytes_on_disk(sealed_bytes)
    chunks = capacity_bytes // file_bytes
    if not chunks:
        raise ValueError(
            f"the disk tier's capacity of {capacity_bytes} bytes has no room for a chunk, which takes {file_bytes}"
        )
    return DiskTier(objects, Tier("disk", chunks, file_bytes, bounds, now), seal, settings, shape)
