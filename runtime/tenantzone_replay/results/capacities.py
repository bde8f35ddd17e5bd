"""Measures how hit rates depend on capacity, by replaying a load under each policy with different numbers of blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_replay.results.tables import columns
from tenantzone_replay.simulation.measures import Result
from tenantzone_replay.simulation.policies import Policy, part_of, scaled
from tenantzone_replay.simulation.replay import replay
from tenantzone_replay.simulation.setting import Setting


@dataclass(frozen=True, slots=True)
class Point:
    """The result of a replay with one number of blocks."""

    blocks: int
    hit_rate: float
    attainment: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The results of one policy with several numbers of blocks."""

    policy: str
    points: tuple[Point, ...]


def curves(
    setting: Setting,
    zones: Sequence[ZoneConfig],
    parts: Sequence[float],
    names: Sequence[str],
    policies_of: Callable[[Setting, Sequence[ZoneConfig]], dict[str, Policy]],
    report: Callable[[Result], None],
) -> list[Curve]:
    """Replay each policy with each capacity. Returns one curve per policy.

    Args:
        setting: the load and the engine, with the full number of blocks.
        zones: the zones for the full number of blocks.
        parts: the capacities to try, as fractions of the full number of blocks. A zone's reservation, limit and
            lendable amount are multiplied by the same fraction, unless they are percentages.
        names: the names of the policies. The policy ``infinite`` never evicts, so it has no curve.
        policies_of: returns all policies for a setting and zones, by name.
        report: called with each result.
    """
    found: dict[str, list[Point]] = {name: [] for name in names if name != "infinite"}
    for part in sorted(parts):
        blocks = max(1, part_of(setting.shape.blocks, part))
        at = replace(setting, shape=replace(setting.shape, blocks=blocks))
        every = policies_of(at, [scaled(zone, part) for zone in zones])
        for name, points in found.items():
            result = replay(at, every[name])
            report(result)
            points.append(Point(blocks, result.hit_rate, result.attainment))
    return [Curve(name, tuple(points)) for name, points in found.items()]


def curves_table(found: Sequence[Curve]) -> str:
    """Returns a table of hit rates with one line for each policy and one column for each capacity."""
    rows: list[Sequence[str]] = [("hit rate with blocks", *(f"{each.blocks:,}" for each in found[0].points))]
    rows += [(curve.policy, *(f"{each.hit_rate:.1%}" for each in curve.points)) for curve in found]
    return columns(rows)
