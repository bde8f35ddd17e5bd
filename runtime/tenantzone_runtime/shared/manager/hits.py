"""Queries the manager on behalf of models with several KV cache groups. Their chunks are only useful together.

The manager treats each chunk as a block with a separate key. Chunks that are needed from the beginning of a prompt form
a chain. Chunks of windows depend on this chain. When a prompt grows, nothing uses the windows at its former end any
more, so the manager evicts them before the chain.
"""

from collections.abc import Sequence

from tenantzone_runtime.disk.relinking import block_of, suffix_of
from tenantzone_runtime.shared.manager.asking import Locate, Located
from tenantzone_runtime.shared.manager.client import ManagerClient
from tenantzone_runtime.zones.tiers.hit_shape import HitShape


def locate_hit(client: ManagerClient, shape: HitShape) -> Locate:
    """Returns a `Locate` function that finds the longest hit in which each group has the chunks that it needs."""
    groups = [(suffix_of(group), window or 0) for group, window in enumerate(shape.windows)]

    def locate(instance: str, keys: Sequence[bytes], seconds: float) -> Located:
        blocks = [block_of(key) for key in keys]
        answer = client.get_hit(instance, blocks, groups, seconds)
        length = answer.matched_blocks
        needed = [
            block + suffix
            for suffix, window in groups
            for block in blocks[max(0, length - window) if window else 0 : length]
        ]
        return needed, answer

    return locate
