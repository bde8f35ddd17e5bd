"""What can be said of groups, instances and storages; all but an instance may be changed at run time."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
Name = Annotated[str, Meta(pattern=NAME, description="Letters, digits, dots, underscores, hyphens; at most 128.")]
QUALIFIED_NAME = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
QualifiedName = Annotated[str, Meta(pattern=QUALIFIED_NAME, description="NAMESPACE/NAME, as Kubernetes has both.")]
ZONE_NAME = rf"{QUALIFIED_NAME[:-1]}/[A-Za-z0-9]([A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?$"
"""NAMESPACE/POOL/OWNER, as its instances have all three."""
NAMESPACE = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Namespace = Annotated[str, Meta(pattern=rf"^$|{NAMESPACE}", description="As Kubernetes has it; empty: all of them.")]
LARGEST = 2**63 - 1
"""Bytes that can be counted."""
Bytes = Annotated[int, Meta(ge=0, le=LARGEST)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
EvictionPolicy = Literal["LRU", "LFU"]


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is left out is without a limit, and nothing is evicted for it."""

    limit: Bytes | None = None
    """Bytes: no write is begun that would pass it."""
    watermark: Fraction | None = None
    """Of the limit: what is used above it is evicted."""


class InstanceQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of one instance in a storage type."""

    reserved: Bytes = 0
    """Bytes that no other instance of the group can take, and that are never evicted for another."""
    limit: Bytes | None = None


class Moves(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Blocks move between storage types by how often they are read, beside all that is asked."""

    bytes_per_second: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    """That are copied for the group, at most."""


class InstanceGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Instances that share one quota: a team's models, a model's versions, the long tail."""

    name: Name
    storages: tuple[Name, ...]
    """Where its blocks may go, the first choice first; if it is full, disabled or unhealthy, the next."""
    pools: tuple[str, ...] = ()
    """Whose engines may register instances in it, as NAMESPACE/POOL."""
    total: Quota = Quota()
    types: dict[str, Quota] = {}
    """By storage type."""
    instances: dict[str, dict[str, InstanceQuota]] = {}
    """By instance, then by storage type; also of instances that are not registered yet."""
    eviction_policy: EvictionPolicy = "LRU"
    ttl_seconds: Annotated[float, Meta(gt=0)] | None = None
    """A block goes that was not used for so long; None: never for that."""
    aliases: tuple[Name, ...] = ()
    """Other names by which who registers an instance may mean it: those of the pools and zones that share it."""
    moves: Moves | None = None
    """None: a block stays where it was written, until it goes."""
    zones: dict[str, dict[str, InstanceQuota]] = {}
    """By zone, NAMESPACE/POOL/OWNER, then by storage type: for its instances in equal parts, but those named above."""


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a block's bytes."""

    name: Name
    size: Annotated[int, Meta(gt=0, le=2**40)]
    """Bytes."""


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model with one KV configuration. Blocks are found again within it only; it never changes."""

    name: Name
    group: Name
    block_size: Annotated[int, Meta(gt=0, le=2**20)]
    """Tokens."""
    specs: Annotated[tuple[Spec, ...], Meta(min_length=1, max_length=1024)]
    """The parts of a whole block, such as ``tp0_pp0_g0``."""
    spec_sets: dict[str, tuple[str, ...]] = {}
    """Names of parts that may be stored without the others: full attention without linear, for instance."""
    needs_prefix: bool = True
    """Whether a block is of no use without all those before it. False: attention over a sliding window only."""
    model: str = ""
    """In words, for people."""
    pool: str = ""
    """Whose it is, NAMESPACE/POOL; said by who registers it, and not by the request."""

    def specs_of(self, spec_set: str) -> tuple[Spec, ...]:
        """The parts of a set; of the empty name: all.

        Raises:
            ValueError: the instance has no such set.
        """
        if not spec_set:
            return self.specs
        if spec_set not in self.spec_sets:
            raise ValueError(f"spec set {spec_set} is not one of the instance's: {', '.join(self.spec_sets) or 'none'}")
        wanted = self.spec_sets[spec_set]
        return tuple(spec for spec in self.specs if spec.name in wanted)


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A place for blocks, which groups share."""

    name: Name
    type: Annotated[str, Meta(pattern=NAME)]
    """Such as ``FileSystem``; quotas are by type."""
    options: dict[str, str | int | bool] = {}
    """Of the type: where it is, and how it is used."""
    enabled: bool = True
    limit: Bytes | None = None
    """Bytes of all groups together: no write is begun that would pass it."""
    watermark: Fraction | None = None
    """Of the limit: what is used above it is evicted, of the groups that use it."""


class ServiceAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose engines show the tokens of a Kubernetes service account. No administrator is made so."""

    name: QualifiedName
    pool: QualifiedName
    """Whose instances they may touch."""


class Evictions(msgspec.Struct, frozen=True, array_like=True):
    """What the reclaimer has evicted of a group since it is there."""

    blocks: int = 0
    bytes: int = 0


def check_group(group: InstanceGroup, known: InstanceGroup | None = None) -> None:
    """Refuse a group whose parts contradict each other.

    Args:
        group: as it shall be.
        known: as it was, if only one of several who share it speaks. What they are promised together need not fit into
            a lower limit as long as it is no more than before: it is for the others to say that they want less.

    Raises:
        ValueError: says which.
    """
    for where, quota in (("total", group.total), *group.types.items()):
        if quota.watermark is not None and quota.limit is None:
            raise ValueError(f"group {group.name}: {where} has a watermark and no limit that it is a fraction of")
    for what, quotas_by_name in (("instance", group.instances), ("zone", group.zones)):
        for name, quotas in quotas_by_name.items():
            for where, own in quotas.items():
                if own.limit is not None and own.limit < own.reserved:
                    raise ValueError(f"group {group.name}: {what} {name} reserves more of {where} than it may use")
    for zone in group.zones:
        if not re.fullmatch(ZONE_NAME, zone):
            raise ValueError(f"group {group.name}: {zone!r} is no zone, NAMESPACE/POOL/OWNER")
    if max(_promised(group).values()) > LARGEST:
        raise ValueError(f"group {group.name}: instances reserve more than {LARGEST} bytes")
    before = _promised(known) if known is not None else {}
    for where, promised in _promised(group).items():
        limit = group.types.get(where, Quota()).limit if where else group.total.limit
        if limit is not None and promised > max(limit, before.get(where, 0)):
            room = f" of {where}, which has {limit}" if where else f"; its total is {limit}"
            raise ValueError(f"group {group.name}: instances reserve {promised} bytes{room}")


def _promised(group: InstanceGroup) -> dict[str, int]:
    """Bytes that its instances and zones are promised together, by storage type; of the empty one: in all."""
    sums: dict[str, int] = {}
    for quotas in (*group.instances.values(), *group.zones.values()):
        for where, own in quotas.items():
            sums[where] = sums.get(where, 0) + own.reserved
    return {**sums, "": sum(sums.values())}


def check_instance(instance: Instance) -> None:
    """Refuse an instance whose parts contradict each other.

    Raises:
        ValueError: says which.
    """
    names = [spec.name for spec in instance.specs]
    if len(set(names)) < len(names):
        raise ValueError(f"instance {instance.name}: two specs have the same name")
    for name, wanted in instance.spec_sets.items():
        if not re.fullmatch(NAME, name):
            raise ValueError(f"instance {instance.name}: {name!r} is no name for a spec set")
        if not wanted or not set(wanted) <= set(names):
            raise ValueError(f"instance {instance.name}: spec set {name} must name some of its specs, and nothing else")
