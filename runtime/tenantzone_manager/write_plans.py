"""A requested write, and the plan for one commit of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from tenantzone_manager.core import placement
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.parts import Files
from tenantzone_manager.turns import WRITE_AT_ONCE, parts_of


@dataclass(frozen=True, slots=True)
class Write:
    """A requested write."""

    instance: Instance
    keys: Sequence[bytes]
    parents: Sequence[int]
    depths: Sequence[int]
    specs: Mapping[int, tuple[Spec, ...]]
    names: Mapping[int, frozenset[str]]
    """The names of each block's parts."""
    id: str
    until: float
    """Unix time when its locations expire, unless they are extended or finished."""
    now: float
    """Unix time of its start."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The storages for the blocks of one commit."""

    write: Write
    places: Mapping[int, placement.Candidate]
    files: Files
    """The large files to take slots from."""
    ends: Sequence[int]
    """Existing blocks that no other block of the write follows: their use is noted."""


def specs_and_names(
    instance: Instance, count: int, first: int, spec_sets: Sequence[str]
) -> tuple[dict[int, tuple[Spec, ...]], dict[int, frozenset[str]]]:
    """Returns the parts of each block from ``first`` on, and the parts' names, by index."""
    if spec_sets and len(spec_sets) != count - first:
        raise ValueError(f"{len(spec_sets)} spec sets do not fit {count - first} blocks from the first to write on")
    of_set = {name: instance.specs_of(name) for name in (set(spec_sets) or ("",))}
    names = {name: frozenset([spec.name for spec in specs]) for name, specs in of_set.items()}
    sets = dict(zip(range(first, count), spec_sets or repeat(""), strict=False))
    return {index: of_set[name] for index, name in sets.items()}, {index: names[name] for index, name in sets.items()}


def write_parts(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    """Returns the indices in parts that are changed in one commit each."""
    return (indices[part] for part in parts_of(len(indices), WRITE_AT_ONCE))


def key_before(write: Write, index: int) -> bytes:
    """Returns the key of the previous block; empty: there is none."""
    parent = write.parents[index]
    return write.keys[parent] if parent >= 0 else b""
