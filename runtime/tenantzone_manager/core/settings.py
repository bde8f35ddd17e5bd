"""The settings of groups, instances and storages; all but an instance's may be changed at run time."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
Name = Annotated[str, Meta(pattern=NAME, description="Letters, digits, dots, underscores, hyphens; at most 128.")]
QUALIFIED_NAME = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
QualifiedName = Annotated[str, Meta(pattern=QUALIFIED_NAME, description="NAMESPACE/NAME, as Kubernetes has both.")]
ZONE_NAME = rf"{QUALIFIED_NAME[:-1]}/[A-Za-z0-9]([A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?$"
"""NAMESPACE/POOL/OWNER, from the names of its instances."""
NAMESPACE = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Namespace = Annotated[str, Meta(pattern=rf"^$|{NAMESPACE}", description="As Kubernetes has it; empty: all of them.")]
LARGEST = 2**63 - 1
"""The largest number of bytes."""
Bytes = Annotated[int, Meta(ge=0, le=LARGEST)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
EvictionPolicy = Literal["LRU", "LFU"]


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A quota. Without a limit, nothing is bounded or evicted."""

    limit: Bytes | None = None
    """Bytes. A write that would exceed the limit is refused."""
    watermark: Fraction | None = None
    """Fraction of the limit. Bytes above it are evicted."""


class InstanceQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The quota of one instance in a storage type."""

    reserved: Bytes = 0
    """Bytes that no other instance of the group can use, and that are never evicted for another."""
    limit: Bytes | None = None


class Moves(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Moves of blocks between storage types, by how often they are read, in the background."""

    bytes_per_second: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    """The most bytes per second that are copied for the group."""


class InstanceGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Instances that share one quota: a team's models, a model's versions, the long tail."""

    name: Name
    storages: tuple[Name, ...]
    """The storages for its blocks, in order of preference; if one is full, disabled or unhealthy, the next is used."""
    pools: tuple[str, ...] = ()
    """The pools whose engines may register instances in it, as NAMESPACE/POOL."""
    total: Quota = Quota()
    types: dict[str, Quota] = {}
    """Quotas by storage type."""
    instances: dict[str, dict[str, InstanceQuota]] = {}
    """Quotas by instance, then by storage type; instances that are not registered yet may be included."""
    eviction_policy: EvictionPolicy = "LRU"
    ttl_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Seconds after which an unused block is evicted; None: never."""
    aliases: tuple[Name, ...] = ()
    """Other names of the group for the registration of instances: those of the pools and zones that share it."""
    moves: Moves | None = None
    """None: a block stays where it was written until it is deleted."""
    zones: dict[str, dict[str, InstanceQuota]] = {}
    """Quotas by zone, NAMESPACE/POOL/OWNER, then by storage type: shared equally by its instances not named above."""


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a block's bytes."""

    name: Name
    size: Annotated[int, Meta(gt=0, le=2**40)]
    """Bytes."""


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model with one KV configuration. Blocks are shared only within an instance. It never changes."""

    name: Name
    group: Name
    block_size: Annotated[int, Meta(gt=0, le=2**20)]
    """Tokens."""
    specs: Annotated[tuple[Spec, ...], Meta(min_length=1, max_length=1024)]
    """The parts of a complete block, such as ``tp0_pp0_g0``."""
    spec_sets: dict[str, tuple[str, ...]] = {}
    """Sets of parts that may be stored without the others, by name: full attention without linear, for example."""
    needs_prefix: bool = True
    """Whether a block is useless without all blocks before it. False: attention over a sliding window only."""
    model: str = ""
    """Description of the model, for people."""
    pool: str = ""
    """The pool that it belongs to, NAMESPACE/POOL: that of the caller who registered it, not a field of the request."""

    def specs_of(self, spec_set: str) -> tuple[Spec, ...]:
        """Returns the parts of a set; all parts if the name is empty.

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
    """A place to store blocks, shared by groups."""

    name: Name
    type: Annotated[str, Meta(pattern=NAME)]
    """The storage type, such as ``FileSystem``; quotas are by type."""
    options: dict[str, str | int | bool] = {}
    """Options of the type: its address, and how it is used."""
    enabled: bool = True
    limit: Bytes | None = None
    """Bytes of all groups together. A write that would exceed the limit is refused."""
    watermark: Fraction | None = None
    """Fraction of the limit. Bytes above it are evicted from the groups that use the storage."""


class ServiceAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pool of a Kubernetes service account whose tokens engines present. It cannot make an administrator."""

    name: QualifiedName
    pool: QualifiedName
    """The pool whose instances they may access."""


class Evictions(msgspec.Struct, frozen=True, array_like=True):
    """What the reclaimer has evicted from a group since the group was created."""

    blocks: int = 0
    bytes: int = 0


def check_group(group: InstanceGroup, known: InstanceGroup | None = None) -> None:
    """Refuse a group whose parts contradict each other.

    Args:
        group: the new settings.
        known: the old settings, if the change is for only one of the namespaces that share the group. Then their
            reservations together may exceed a lowered limit as long as they do not grow: the other namespaces must
            reduce theirs.

    Raises:
        ValueError: names the contradiction.
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
    """Returns the bytes reserved for all instances and zones, by storage type; under the empty name, their sum."""
    sums: dict[str, int] = {}
    for quotas in (*group.instances.values(), *group.zones.values()):
        for where, own in quotas.items():
            sums[where] = sums.get(where, 0) + own.reserved
    return {**sums, "": sum(sums.values())}


def check_instance(instance: Instance) -> None:
    """Refuse an instance whose parts contradict each other.

    Raises:
        ValueError: names the contradiction.
    """
    names = [spec.name for spec in instance.specs]
    if len(set(names)) < len(names):
        raise ValueError(f"instance {instance.name}: two specs have the same name")
    for name, wanted in instance.spec_sets.items():
        if not re.fullmatch(NAME, name):
            raise ValueError(f"instance {instance.name}: {name!r} is no name for a spec set")
        if not wanted or not set(wanted) <= set(names):
            raise ValueError(f"instance {instance.name}: spec set {name} must name some of its specs, and nothing else")
