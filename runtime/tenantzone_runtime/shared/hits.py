"""The queries and updates for the manager if chunks of several groups of a model's KV caches are only useful together.

Each chunk is a block with its own key there. Chunks that are needed from a prompt's beginning form a chain, and those
of a window depend on it: the windows of former ends are not used any more, and are evicted before the common chain.
"""

from collections.abc import Sequence

from tenantzone_runtime.disk.relinking import block_of, suffix_of
from tenantzone_runtime.shared.asking import Locate, Located
from tenantzone_runtime.shared.client import ManagerClient
from tenantzone_runtime.zones.hit_shape import HitShape


def locate_hit(client: ManagerClient, shape: HitShape) -> Locate:
    """Returns a query for the beginning of a prompt for which each group of a model has what it needs."""
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
