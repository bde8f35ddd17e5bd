"""The settings of groups, instances and storages. The settings of a registered instance can't be changed."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
Name = Annotated[str, Meta(pattern=NAME, description="Letters, digits, dots, underscores, hyphens; at most 128.")]
QUALIFIED_NAME = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
QualifiedName = Annotated[str, Meta(pattern=QUALIFIED_NAME, description="NAMESPACE/NAME, as Kubernetes has both.")]
ZONE_NAME = rf"{QUALIFIED_NAME[:-1]}/[A-Za-z0-9]([A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?$"
"""Pattern of a zone's name, NAMESPACE/POOL/OWNER. The owner is part of the names of the zone's instances."""
NAMESPACE = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Namespace = Annotated[str, Meta(pattern=rf"^$|{NAMESPACE}", description="As Kubernetes has it; empty: all of them.")]
LARGEST = 2**63 - 1
"""Largest number of bytes that a setting may specify."""
Bytes = Annotated[int, Meta(ge=0, le=LARGEST)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
EvictionPolicy = Literal["LRU", "LFU"]


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A quota. Without a limit, nothing is bounded or evicted."""

    limit: Bytes | None = None
    """Maximum number of bytes. A write that would exceed the limit is refused."""
    watermark: Fraction | None = None
    """Fraction of the limit above which blocks are evicted."""


class InstanceQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The quota of one instance in a storage type."""

    reserved: Bytes = 0
    """Number of bytes that no other instance of the group can use, and that are never evicted for another instance."""
    limit: Bytes | None = None


class Moves(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Moves of blocks between storage types, by how often they are read, in the background."""

    bytes_per_second: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    """Maximum number of bytes copied per second for the group."""


class InstanceGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Instances that share one quota: a team's models, a model's versions, the long tail."""

    name: Name
    storages: tuple[Name, ...]
    """Storages for the group's blocks, in order of preference. Full, disabled or unhealthy storages are skipped."""
    pools: tuple[str, ...] = ()
    """Pools whose engines may register instances in the group, as NAMESPACE/POOL."""
    total: Quota = Quota()
    types: dict[str, Quota] = {}
    """Quotas by storage type."""
    instances: dict[str, dict[str, InstanceQuota]] = {}
    """Quotas by instance, then by storage type. They may include instances that are not registered yet."""
    eviction_policy: EvictionPolicy = "LRU"
    ttl_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Seconds without use after which a block is evicted. If None, blocks are not evicted because of their age."""
    aliases: tuple[Name, ...] = ()
    """Other names under which instances can be registered in the group, one per pool or zone that shares the group."""
    moves: Moves | None = None
    """Settings of moves. If None, no block is moved to another storage after it was written."""
    zones: dict[str, dict[str, InstanceQuota]] = {}
    """Quotas by zone, NAMESPACE/POOL/OWNER, then by storage type.

    The quota of a zone is divided equally among its instances that have no quotas in ``instances``.
    """


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a block's bytes."""

    name: Name
    size: Annotated[int, Meta(gt=0, le=2**40)]
    """Size of the part in bytes."""


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model with one KV configuration. Blocks are shared only within an instance. It never changes."""

    name: Name
    group: Name
    block_size: Annotated[int, Meta(gt=0, le=2**20)]
    """Number of tokens per block."""
    specs: Annotated[tuple[Spec, ...], Meta(min_length=1, max_length=1024)]
    """Parts of a complete block, for example ``tp0_pp0_g0``."""
    spec_sets: dict[str, tuple[str, ...]] = {}
    """Named sets of parts that may be stored without the other parts, for example only the parts of full attention."""
    needs_prefix: bool = True
    """Whether a block can be used only after all preceding blocks. False only if all layers use sliding windows."""
    model: str = ""
    """Human-readable description of the model."""
    pool: str = ""
    """Pool of the caller that registered the instance, NAMESPACE/POOL. An administrator may name any pool."""

    def specs_of(self, spec_set: str) -> tuple[Spec, ...]:
        """Returns the parts of the set with this name, or all parts if the name is empty.

        Raises:
            ValueError: the instance has no such set.
        """
        if not spec_set:
            return self.specs
        if spec_set not in self.spec_sets:
            raise ValueError(
                f"the instance has no spec set {spec_set}; its spec sets: {', '.join(self.spec_sets) or 'none'}"
            )
        wanted = self.spec_sets[spec_set]
        return tuple(spec for spec in self.specs if spec.name in wanted)


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A place to store blocks, shared by groups."""

    name: Name
    type: Annotated[str, Meta(pattern=NAME)]
    """Storage type, for example ``FileSystem``. A group has quotas by storage type."""
    options: dict[str, str | int | bool] = {}
    """Options of the storage type, such as the address of the storage."""
    enabled: bool = True
    limit: Bytes | None = None
    """Maximum number of bytes of all groups together. A write that would exceed the limit is refused."""
    watermark: Fraction | None = None
    """Fraction of the limit above which blocks are evicted from the groups that use the storage."""


class ServiceAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pool of a Kubernetes service account whose tokens engines present. It cannot make an administrator."""

    name: QualifiedName
    pool: QualifiedName
    """Pool whose instances can be accessed with tokens of the service account."""


class Evictions(msgspec.Struct, frozen=True, array_like=True):
    """Number of blocks and bytes that the reclaimer has evicted from a group since the group was created."""

    blocks: int = 0
    bytes: int = 0


def check_group(group: InstanceGroup, known: InstanceGroup | None = None) -> None:
    """Refuse group settings that contradict each other.

    Args:
        group: the new settings.
        known: the old settings, if the change is for only one of the namespaces that share the group. Such a change
            can't reduce the reservations of other namespaces. Therefore, the sum of all reservations may exceed a
            lowered limit, provided that the change does not increase the sum.

    Raises:
        ValueError: the settings contradict each other; the message says how.
    """
    for where, quota in (("total", group.total), *group.types.items()):
        if quota.watermark is not None and quota.limit is None:
            raise ValueError(f"group {group.name}: {where} has a watermark but no limit; set a limit")
    for what, quotas_by_name in (("instance", group.instances), ("zone", group.zones)):
        for name, quotas in quotas_by_name.items():
            for where, own in quotas.items():
                if own.limit is not None and own.limit < own.reserved:
                    raise ValueError(
                        f"group {group.name}: {what} {name} reserves more of {where} than its limit; lower reserved, "
                        "or raise the limit"
                    )
    for zone in group.zones:
        if not re.fullmatch(ZONE_NAME, zone):
            raise ValueError(f"group {group.name}: {zone!r} is not a valid zone name; write NAMESPACE/POOL/OWNER")
    if max(_promised(group).values()) > LARGEST:
        raise ValueError(
            f"group {group.name}: instances and zones together reserve more than {LARGEST} bytes; lower reserved"
        )
    before = _promised(known) if known is not None else {}
    for where, promised in _promised(group).items():
        limit = group.types.get(where, Quota()).limit if where else group.total.limit
        if limit is not None and promised > max(limit, before.get(where, 0)):
            room = f" of {where}, whose limit is {limit}" if where else f", but the limit of the total is {limit}"
            raise ValueError(
                f"group {group.name}: instances and zones reserve {promised} bytes{room}; lower reserved, or raise the "
                "limit"
            )


def _promised(group: InstanceGroup) -> dict[str, int]:
    """Returns the bytes that instances and zones reserve, by storage type. The empty type has the sum of all types."""
    sums: dict[str, int] = {}
    for quotas in (*group.instances.values(), *group.zones.values()):
        for where, own in quotas.items():
            sums[where] = sums.get(where, 0) + own.reserved
    return {**sums, "": sum(sums.values())}


def check_instance(instance: Instance) -> None:
    """Refuse instance settings that contradict each other.

    Raises:
        ValueError: the settings contradict each other; the message says how.
    """
    names = [spec.name for spec in instance.specs]
    if len(set(names)) < len(names):
        raise ValueError(f"instance {instance.name}: two specs have the same name; give each spec its own name")
    for name, wanted in instance.spec_sets.items():
        if not re.fullmatch(NAME, name):
            raise ValueError(
                f"instance {instance.name}: {name!r} is not a valid name of a spec set; use letters, digits, dots, "
                "underscores and hyphens, and begin and end with a letter or digit"
            )
        if not wanted or not set(wanted) <= set(names):
            raise ValueError(
                f"instance {instance.name}: spec set {name} must name at least one spec, and only specs of the instance"
            )
