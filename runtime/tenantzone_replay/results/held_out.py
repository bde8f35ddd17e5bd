"""Tests the zones that were advised for one load on other loads, and compares them with equal shares."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_replay.halving import halved
from tenantzone_replay.results.tables import columns, percent, whole_percent
from tenantzone_replay.simulation.policies import Policy, equal_zones, scaled
from tenantzone_replay.simulation.replay import replay
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import TraceError


@dataclass(frozen=True, slots=True)
class Trial:
    """The result for one load that was not part of the search."""

    load: str
    advised: float
    """Fraction of requests in time for the worst tenant, with the advised zones and memory."""
    equal: float
    """Fraction of requests in time for the worst tenant, with equal shares of the same memory."""
    advised_blocks: int
    """Smallest tried number of blocks with which the worst tenant of the advised zones reaches the goal.

    The goal is the fraction ``advised`` or the target, whichever is lower.
    """
    equal_blocks: int | None
    """Smallest tried number of blocks with which equal shares reach the same goal, or None if none is enough."""


def check_tenants(load: str, setting: Setting, known: Collection[str]) -> None:
    """Refuse a load with tenants that the advice does not cover.

    Args:
        load: the load's description.
        setting: the load and the engine.
        known: the tenants of the load for which the zones were advised.

    Raises:
        TraceError: the load has a tenant that is not in ``known``.
    """
    if missing := sorted(set(setting.profile.demand) - set(known)):
        raise TraceError(
            f"--held-out {load} has tenants that are not in the load for the advice: {', '.join(missing[:5])}; remove "
            "their requests"
        )


def try_on(
    load: str,
    setting: Setting,
    zones: Sequence[ZoneConfig],
    blocks: int,
    sizes: Sequence[int],
    wanted: float,
    report: Callable[[str], None],
    tier_blocks: int = 0,
) -> Trial:
    """Replay a load with the advised zones and with equal zones, both with the advised tier.

    Args:
        load: the load's description.
        setting: the load and the engine. Each tenant of the load has an advised zone.
        zones: the advised zones.
        blocks: the advised number of blocks.
        sizes: other numbers of blocks to try with both kinds of zones.
        wanted: the fraction of each tenant's requests that must be in time.
        report: called with a message after each replay.
        tier_blocks: the advised number of blocks of the CPU memory tier.
    """
    tenants = list(setting.profile.demand)

    def worst(zones: Sequence[ZoneConfig], blocks: int, what: str) -> float:
        at = replace(setting, shape=replace(setting.shape, blocks=blocks))
        result = replay(at, Policy("tried", "zones that are tried", zones=tuple(zones), tier_blocks=tier_blocks))
        report(f"  {what} with {blocks:,} blocks: worst tenant {result.worst:.1%} in time")
        return result.worst

    def least(zones_of: Callable[[int], Sequence[ZoneConfig]], what: str, enough: float) -> int | None:
        def is_enough(size: int) -> bool:
            return worst(zones_of(size), size, what) >= enough

        too_little = 0
        for size in sorted({*sizes, blocks}):
            if is_enough(size):
                return halved(too_little, size, is_enough)
            too_little = size
        return None

    advised = worst(zones, blocks, "advised")
    # A number of blocks is enough if the result reaches the advised result or the target, whichever is lower.
    enough = min(advised, wanted)
    return Trial(
        load,
        advised,
        worst(equal_zones(tenants, blocks), blocks, "equal shares"),
        least(lambda size: [scaled(zone, size / blocks) for zone in zones], "advised", enough) or blocks,
        least(lambda size: equal_zones(tenants, size), "equal shares", enough),
    )


def trials_table(trials: Sequence[Trial], wanted: float) -> str:
    """Returns a table of the memory that the advised zones save for each load, and for all loads together.

    Args:
        trials: the results, one for each load.
        wanted: the fraction of each tenant's requests that must be in time.
    """
    rows: list[Sequence[str]] = [
        ("held-out load", "advised, worst in time", "equal shares", "advised need", "equal shares need", "memory saved")
    ]
    rows += [_row(str(number), each) for number, each in enumerate(trials, 1)]
    if len(trials) > 1:
        rows.append(_row("all of them", _whole(trials)))
    loads = [f"{number}: {each.load}" for number, each in enumerate(trials, 1)]
    missed = [str(number) for number, each in enumerate(trials, 1) if each.advised < wanted]
    if missed:
        loads += [
            "",
            f"The advice misses the target of {percent(wanted)} on load {', '.join(missed)}; the blocks needed there"
            " are for the fraction that the advice reaches, not for the target.",
        ]
    return "\n".join([columns(rows), "", *loads])


def _whole(trials: Sequence[Trial]) -> Trial:
    """Returns the worst values of all trials. They show the memory that is enough for each of the loads."""
    needed = [each.equal_blocks for each in trials]
    known = [blocks for blocks in needed if blocks is not None]
    return Trial(
        "",
        min(each.advised for each in trials),
        min(each.equal for each in trials),
        max(each.advised_blocks for each in trials),
        max(known) if len(known) == len(needed) else None,
    )


def _row(name: str, trial: Trial) -> tuple[str, ...]:
    needs = "more than was tried" if trial.equal_blocks is None else f"{trial.equal_blocks:,} blocks"
    saved = "" if trial.equal_blocks is None else whole_percent(1 - trial.advised_blocks / trial.equal_blocks)
    return (name, f"{trial.advised:.1%}", f"{trial.equal:.1%}", f"{trial.advised_blocks:,} blocks", needs, saved)
