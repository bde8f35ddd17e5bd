"""What the manager is asked and told where chunks of several groups of a model's KV caches are of use together only.

Each chunk is a block of its own there, by its own key. Those that are needed from a prompt's beginning hang together,
and those of a window hang on them: a former end's are used no more, and go before what it has in common with others.
"""

from collections.abc import Sequence

from tenantzone_runtime.disk.relinking import block_of, suffix_of
from tenantzone_runtime.shared.asking import Locate, Told
from tenantzone_runtime.shared.client import ManagerClient
from tenantzone_runtime.zones.hit_shape import HitShape


def locate_hit(client: ManagerClient, shape: HitShape) -> Locate:
    """Asks how far each group of a model has what it needs of a prompt, and where that is."""
    groups = [(suffix_of(group), window or 0) for group, window in enumerate(shape.windows)]

    def locate(instance: str, keys: Sequence[bytes], seconds: float) -> Told:
        blocks = [block_of(key) for key in keys]
        told = client.get_hit(instance, blocks, groups, seconds)
        length = told.matched_blocks
        needed = [
            block + suffix
            for suffix, window in groups
            for block in blocks[max(0, length - window) if window else 0 : length]
        ]
        return needed, told

    return locate
