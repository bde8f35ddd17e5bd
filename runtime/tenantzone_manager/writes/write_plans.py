"""A requested write, and the plan for one of its commits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from tenantzone_manager.core import placement
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.turns import WRITE_AT_ONCE, parts_of
from tenantzone_manager.writes.parts import Files


@dataclass(frozen=True, slots=True)
class Write:
    """A requested write."""

    instance: Instance
    keys: Sequence[bytes]
    parents: Sequence[int]
    depths: Sequence[int]
    specs: Mapping[int, tuple[Spec, ...]]
    names: Mapping[int, frozenset[str]]
    """Names of the parts of each block."""
    id: str
    until: float
    """Unix time at which the locations of the write expire, unless the write is extended or finished."""
    now: float
    """Unix time at which the write started."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The storages for the blocks of one commit."""

    write: Write
    places: Mapping[int, placement.Candidate]
    files: Files
    """Large files in which slots may be allocated."""
    ends: Sequence[int]
    """Indices of existing blocks without a following block in this write. The commit records a use of each."""


def specs_and_names(
    instance: Instance, count: int, first: int, spec_sets: Sequence[str]
) -> tuple[dict[int, tuple[Spec, ...]], dict[int, frozenset[str]]]:
    """Returns two mappings for the blocks from ``first`` on: their parts by index, and their parts' names by index."""
    if spec_sets and len(spec_sets) != count - first:
        raise ValueError(
            f"spec_sets has {len(spec_sets)} entries for {count - first} blocks to write; send one entry per block to "
            "write"
        )
    of_set = {name: instance.specs_of(name) for name in (set(spec_sets) or ("",))}
    names = {name: frozenset([spec.name for spec in specs]) for name, specs in of_set.items()}
    sets = dict(zip(range(first, count), spec_sets or repeat(""), strict=False))
    return {index: of_set[name] for index, name in sets.items()}, {index: names[name] for index, name in sets.items()}


def write_parts(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    """Returns the indices in batches, each for one commit."""
    return (indices[part] for part in parts_of(len(indices), WRITE_AT_ONCE))


def key_before(write: Write, index: int) -> bytes:
    """Returns the key of the previous block, or an empty key for the first block of a prompt."""
    parent = write.parents[index]
    return write.keys[parent] if parent >= 0 else b""
