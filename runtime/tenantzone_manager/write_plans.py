"""A write as it was asked for, and what of it goes where in one commit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from tenantzone_manager.core import placement
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.parts import Files
from tenantzone_manager.turns import WRITE_AT_ONCE, parts_of


@dataclass(frozen=True, slots=True)
class Write:
    """A write, as it was asked for."""

    instance: Instance
    keys: Sequence[bytes]
    parents: Sequence[int]
    depths: Sequence[int]
    specs: Mapping[int, tuple[Spec, ...]]
    names: Mapping[int, frozenset[str]]
    """Of the parts that each block has."""
    id: str
    until: float
    """Unix time until which locations last that it begins, if nothing else is said of them."""
    now: float
    """Unix time when it was begun."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where blocks of one commit go."""

    write: Write
    places: Mapping[int, placement.Candidate]
    files: Files
    """Of which slots may be taken."""
    ends: Sequence[int]
    """Blocks that are there and that no other one follows: it is noted that they are used."""


def specs_and_names(
    instance: Instance, count: int, first: int, spec_sets: Sequence[str]
) -> tuple[dict[int, tuple[Spec, ...]], dict[int, frozenset[str]]]:
    """Of each block from the first to write on, its parts and their names."""
    if spec_sets and len(spec_sets) != count - first:
        raise ValueError(f"{len(spec_sets)} spec sets do not fit {count - first} blocks from the first to write on")
    of_set = {name: instance.specs_of(name) for name in (set(spec_sets) or ("",))}
    names = {name: frozenset([spec.name for spec in specs]) for name, specs in of_set.items()}
    sets = dict(zip(range(first, count), spec_sets or repeat(""), strict=False))
    return {index: of_set[name] for index, name in sets.items()}, {index: names[name] for index, name in sets.items()}


def write_parts(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    """The blocks that are changed together, of so many."""
    return (indices[part] for part in parts_of(len(indices), WRITE_AT_ONCE))


def key_before(write: Write, index: int) -> bytes:
    """The key of the block before one; empty: there is none."""
    parent = write.parents[index]
    return write.keys[parent] if parent >= 0 else b""
