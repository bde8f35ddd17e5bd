"""Which zones fit into their pool: oldest first, and what was granted once is not taken away for a newer wish.

The snapshot that the engines already have is the memory of what was granted, so a restart changes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.share import ceil_blocks, floor_blocks, percentage
from tenantzone_operator.conditions import Reason
from tenantzone_operator.resources import Zone, entry_bytes

Share = int | str

CONFIG_BYTES = 900_000
"""New zones may fill a pool's config up to this. A ConfigMap takes 1,048,576 bytes; the rest is for what changes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one zone's spec."""

    reason: Reason
    message: str
    entry: ZoneConfig | None
    """The zone in the new snapshot: as its spec says, or as it was accepted last, or None: it has no part in it."""

    @property
    def accepted(self) -> bool:
        return self.reason == Reason.ACCEPTED


class Budget:
    """Adds up reservations, in engines of each size that the pool has.

    Sizes are the engines' blocks. While none is known, an engine of 100 blocks stands in, so that percentages are
    counted; absolute numbers then count as nothing, because there is nothing to compare them with.
    """

    def __init__(self, sizes: Collection[int]) -> None:
        self.is_provisional = not sizes
        self._granted = dict.fromkeys(sorted(sizes) or [100], 0)
        self.config_bytes = 0
        """Size of all entries, as they go into the config."""

    def shortage(self, share: Share) -> tuple[int, int, int]:
        """Where it is scarcest: missing (0: it fits), size of the engine, and what is left there."""
        return max(
            (max(0, granted + self._blocks(share, size) - size), size, size - granted)
            for size, granted in self._granted.items()
        )

    def fits(self, share: Share) -> bool:
        missing, _, _ = self.shortage(share)
        return missing == 0

    def take(self, entry: ZoneConfig, size: int) -> None:
        """Grant what the entry reserves, and the bytes that it has in the config."""
        self._add(entry, size, 1)

    def give_back(self, entry: ZoneConfig, size: int) -> None:
        self._add(entry, size, -1)

    @property
    def reserved(self) -> int:
        """Blocks that are granted in the smallest engine."""
        return self._granted[min(self._granted)]

    @property
    def allocatable(self) -> int:
        """Blocks that another zone can still reserve, where they are scarcest."""
        return min(max(0, size - granted) for size, granted in self._granted.items())

    def is_within(self, share: Share, granted: Share) -> bool:
        """Whether one share asks for no more than the other in any engine."""
        return all(self._blocks(share, size) <= self._blocks(granted, size) for size in self._granted)

    def contradiction(self, entry: ZoneConfig) -> str:
        """Why an engine could not hold the entry, whatever else is in the pool; empty if it can."""
        if self.is_provisional or entry.limit is None:
            return ""
        for size in self._granted:
            reserved, limit = floor_blocks(entry.reserved, size), ceil_blocks(entry.limit, size)
            if limit < reserved <= size:
                return (
                    f"limit ({entry.limit}) is {limit} of an engine's {size} blocks and below reserved "
                    f"({entry.reserved}), which is {reserved}; raise limit or lower reserved"
                )
        return ""

    def _add(self, entry: ZoneConfig, size: int, sign: int) -> None:
        self.config_bytes += sign * size
        for blocks in self._granted:
            self._granted[blocks] += sign * self._blocks(entry.reserved, blocks)

    def _blocks(self, share: Share, size: int) -> int:
        if self.is_provisional:
            return percentage(share) if isinstance(share, str) else 0
        return floor_blocks(share, size)


def admit(zones: Sequence[Zone], granted: Mapping[str, ZoneConfig], sizes: Collection[int]) -> dict[str, Verdict]:
    """Decide on all zones of a pool, by name.

    Args:
        zones: in any order; what counts is their age.
        granted: the entries of the snapshot in force, by zone name.
        sizes: blocks of the ready engines, or what is known of them; empty if nothing ever was.
    """
    by_age = sorted(zones, key=lambda zone: zone.meta.age_order)
    budget = Budget(sizes)
    owners: dict[str, str] = {}
    # Who has the tenant keeps it: within one second the name says who is older, and a later one may have the lower.
    for zone in sorted(by_age, key=lambda zone: not _has_its_tenant(zone, granted)):
        owners.setdefault(zone.tenant, zone.meta.name)
    rivals = {zone.meta.name: owners[zone.tenant] for zone in by_age if owners[zone.tenant] != zone.meta.name}
    contenders = [zone for zone in by_age if zone.meta.name not in rivals]
    kept = _keep(contenders, granted, budget)
    verdicts = {zone.meta.name: _decide(zone, kept.get(zone.meta.name), budget) for zone in contenders}
    for zone in by_age:
        if zone.meta.name in rivals:
            verdicts[zone.meta.name] = _conflict(zone, rivals[zone.meta.name])
    return verdicts


def _has_its_tenant(zone: Zone, granted: Mapping[str, ZoneConfig]) -> bool:
    entry = granted.get(zone.meta.name)
    return entry is not None and entry.tenant == zone.tenant


def _keep(zones: Sequence[Zone], granted: Mapping[str, ZoneConfig], budget: Budget) -> dict[str, ZoneConfig]:
    """First pass: what was granted stays, or less of it where less is wanted; oldest first if it no longer all fits."""
    kept = {}
    for zone in zones:
        if not _has_its_tenant(zone, granted):
            continue
        entry, wanted = granted[zone.meta.name], zone.config
        if (
            wanted is not None
            and not budget.contradiction(wanted)
            and budget.is_within(wanted.reserved, entry.reserved)
        ):
            entry = wanted
        if budget.contradiction(entry) or not budget.fits(entry.reserved):
            continue
        budget.take(entry, _bytes(zone, entry))
        kept[zone.meta.name] = entry
    return kept


def _decide(zone: Zone, kept: ZoneConfig | None, budget: Budget) -> Verdict:
    """Second pass: new zones and increases get what is left."""
    wanted = zone.config
    if wanted is None or (contradiction := budget.contradiction(wanted)):
        message = zone.invalid if wanted is None else contradiction
        return Verdict(Reason.INVALID, message + _stays(kept), kept)
    if kept is wanted or kept == wanted:
        return Verdict(Reason.ACCEPTED, _welcome(wanted, budget), wanted)
    if kept is not None:
        budget.give_back(kept, _bytes(zone, kept))
    if not budget.fits(wanted.reserved):
        refusal = Reason.POOL_OVERCOMMITTED, _overcommitted(wanted.reserved, budget)
    elif budget.config_bytes + zone.config_bytes > CONFIG_BYTES and kept is None:
        refusal = Reason.CONFIG_TOO_LARGE, _too_large(zone, budget)
    else:
        budget.take(wanted, zone.config_bytes)
        return Verdict(Reason.ACCEPTED, _welcome(wanted, budget), wanted)
    if kept is not None:
        budget.take(kept, _bytes(zone, kept))
    reason, message = refusal
    return Verdict(reason, message + _stays(kept), kept)


def _welcome(entry: ZoneConfig, budget: Budget) -> str:
    if budget.is_provisional and isinstance(entry.reserved, int) and entry.reserved > 0:
        return (
            f"valid; no engine has told its size yet, so whether {entry.reserved} blocks fit is checked when one does"
        )
    return "valid, and fits into the pool"


def _overcommitted(reserved: Share, budget: Budget) -> str:
    missing, size, left = budget.shortage(reserved)
    if budget.is_provisional:
        return f"reserved is {reserved} and {left}% is left, {missing}% too little; lower it to {left}% or free others"
    wanted = f"{reserved}, which is {left + missing} blocks" if isinstance(reserved, str) else f"{reserved} blocks"
    return (
        f"reserved is {wanted}, and {left} of an engine's {size} blocks are left, {missing} too few; "
        f"lower reserved to {left} ({100 * left // size}%) or lower that of other zones"
    )


def _bytes(zone: Zone, entry: ZoneConfig) -> int:
    return zone.config_bytes if entry is zone.config else entry_bytes(entry)


def _too_large(zone: Zone, budget: Budget) -> str:
    return (
        f"the zones of this pool fill {budget.config_bytes:,} of the {CONFIG_BYTES:,} bytes that its config may have, "
        f"and this one needs {zone.config_bytes:,}; name another ZonePool, or delete zones of this one"
    )


def _conflict(zone: Zone, owner: str) -> Verdict:
    message = f"TenantZone {owner} has the tenant {zone.tenant} already; delete one of the two"
    return Verdict(Reason.TENANT_CONFLICT, message, None)


def _stays(kept: ZoneConfig | None) -> str:
    return f". Generation {kept.generation} stays in force" if kept is not None else ""
