"""Creates the disk tier of one engine from the engine's flags and its pool's salt key."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tenantzone_contract.zone_config.instance import Instance
from tenantzone_runtime.disk.files.file_system import FileSystem, LocalFileSystem
from tenantzone_runtime.disk.files.layout import bytes_on_disk
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.files.sealing import ZoneSeal
from tenantzone_runtime.disk.tier import DiskSettings, DiskTier
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds

BOUNDS: Final = TransferBounds(stores=64, loads=64)
"""The default maximum numbers of chunks in transfer, for each zone."""
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
    """Returns the disk tier of one engine. The tier stores nothing until a thread has listed the disk's files.

    Args:
        root: a folder that no other engine uses. It is created if it does not exist.
        capacity_bytes: maximum disk space of the tier's files in bytes.
        chunk_bytes: size of a chunk in memory in bytes.
        salt_key: returns the pool's current salt key.
        instance: returns the instance to which the chunks of a tenant's zone belong.
        bounds: maximum number of chunks of each zone in transfer.
        settings: settings of transfers.
        shape: hit shape of a model whose chunks are only useful together; None if each chunk is useful on its own.
        file_system: file system of the folder; None for the operating system's.
        now: monotonic time in seconds.

    Raises:
        ValueError: the folder's path is not absolute, or the capacity is smaller than a chunk.
    """
    if not root.is_absolute():
        raise ValueError(f"the disk tier's folder must be an absolute path such as /data/cache, but {root} is relative")

    def seal(tenant: str, purge: str) -> ZoneSeal:
        return ZoneSeal(salt_key(), instance(tenant), purge)

    sealed_bytes = seal("", "").sealed_size(chunk_bytes)
    objects = Objects(root, file_system or LocalFileSystem(), chunk_bytes, sealed_bytes)
    file_bytes = bytes_on_disk(sealed_bytes)
    chunks = capacity_bytes // file_bytes
    if not chunks:
        raise ValueError(
            f"the disk tier's capacity of {capacity_bytes} bytes is less than one chunk, which needs {file_bytes} "
            "bytes; increase --disk-tier-size"
        )
    return DiskTier(objects, Tier("disk", chunks, file_bytes, bounds, now), seal, settings, shape)
