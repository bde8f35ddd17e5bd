"""Tiers below CPU memory load a prompt's chunks, each from the nearest tier, however long the prompt is."""

from types import SimpleNamespace

from tenantzone_runtime.engine.tiers.whole_prompts import WholePrompts
from tenantzone_runtime.zones.tiers.hit_shape import HitShape


class Chunk(int):
    """Counts how often any chunk is looked at."""

    looks = 0

    def __hash__(self):
        Chunk.looks += 1
        return int(self)


class Below:
    """A tier that has some chunks."""

    medium = locality = None
    is_readable = True

    def __init__(self, has):
        self._has = has

    def holds(self, key, _):
        return self._has(key)


def test_where_thousands_come_from_is_found_as_fast_as_they_are_many():
    disk, shared = Below(lambda key: key % 2 == 0), Below(lambda key: True)
    whole = WholePrompts(SimpleNamespace(primary_tier=None), disk, shared, HitShape(16, (None, 4)))
    context = SimpleNamespace(load_tier_filter=SimpleNamespace(allows=lambda *_: True))
    keys = [Chunk(number) for number in range(1000)]
    Chunk.looks = 0
    assert whole._sources(keys, context) == [(disk, keys[::2]), (shared, keys[1::2])]
    assert Chunk.looks < 10 * len(keys), "not each time again for each chunk"
