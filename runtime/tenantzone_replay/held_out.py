"""Whether what was advised for one load is worth it on others, beside equal shares as somebody sets them by hand."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tenantzone_contract.config import ZoneConfig
from tenantzone_replay.load import TraceError
from tenantzone_replay.policies import Policy, equal_zones, scaled
from tenantzone_replay.replay import replay
from tenantzone_replay.setting import Setting
from tenantzone_replay.tables import columns


@dataclass(frozen=True, slots=True)
class Trial:
    """One load that the search has not seen."""

    load: str
    advised: float
    """The part of its requests that the worst tenant has in time with the advised zones and memory."""
    equal: float
    """The same with equal shares of as much memory."""
    advised_blocks: int
    """The least memory of those that were tried with which the advised zones do as well, or well enough."""
    equal_blocks: int | None
    """The same for equal shares; None: none that was tried."""


def check_tenants(load: str, setting: Setting, known: Collection[str]) -> None:
    """Refuse a load in which somebody asks whom the advice will not be about.

    Args:
        load: what it is, in words.
        setting: the load and the engine.
        known: tenants of the load that advice is sought for.

    Raises:
        TraceError: there is one.
    """
    if missing := sorted(set(setting.profile.demand) - set(known)):
        raise TraceError(
            f"--held-out {load}: {', '.join(missing[:5])} asks, who does not in the load that advice is sought for"
        )


def try_on(
    load: str,
    setting: Setting,
    zones: Sequence[ZoneConfig],
    blocks: int,
    sizes: Sequence[int],
    wanted: float,
    told: Callable[[str], None],
    tier_blocks: int = 0,
) -> Trial:
    """Replay a load with the advised zones and with equal ones, over as large a tier.

    Args:
        load: what it is, in words.
        setting: the load, each of whose tenants has a zone, and the engine.
        zones: that were advised.
        blocks: that were advised.
        sizes: memory to try with both, in blocks; reservations are parts of it.
        wanted: the part of its requests that each tenant is to have in time.
        told: called with each step, in words.
        tier_blocks: that were advised, of CPU memory below the engine.
    """
    tenants = list(setting.profile.demand)

    def worst(zones: Sequence[ZoneConfig], blocks: int, what: str) -> float:
        at = replace(setting, shape=replace(setting.shape, blocks=blocks))
        result = replay(at, Policy("tried", "zones that are tried", zones=tuple(zones), tier_blocks=tier_blocks))
        found = min(each.attainment for each in result.tenants.values())
        told(f"  {load}, {what} with {blocks:,} blocks: worst tenant {found:.1%} in time")
        return found

    def least(zones_of: Callable[[int], Sequence[ZoneConfig]], what: str, enough: float) -> int | None:
        for size in sorted({*sizes, blocks}):
            if worst(zones_of(size), size, what) >= enough:
                return size
        return None

    advised = worst(zones, blocks, "advised")
    # As good as the advice, or as good as is wanted: more is not needed.
    enough = min(advised, wanted)
    return Trial(
        load,
        advised,
        worst(equal_zones(tenants, blocks), blocks, "equal shares"),
        least(lambda size: [scaled(zone, size / blocks) for zone in zones], "advised", enough) or blocks,
        least(lambda size: equal_zones(tenants, size), "equal shares", enough),
    )


def trials_table(trials: Sequence[Trial]) -> str:
    """What the advice is worth, load by load."""
    rows: list[Sequence[str]] = [
        ("held-out load", "advised, worst in time", "equal shares", "advised need", "equal shares need", "memory saved")
    ]
    for each in trials:
        needs = "more than was tried" if each.equal_blocks is None else f"{each.equal_blocks:,} blocks"
        saved = "" if each.equal_blocks is None else f"{1 - each.advised_blocks / each.equal_blocks:.0%}"
        rows.append(
            (each.load, f"{each.advised:.1%}", f"{each.equal:.1%}", f"{each.advised_blocks:,} blocks", needs, saved)
        )
    return columns(rows)
