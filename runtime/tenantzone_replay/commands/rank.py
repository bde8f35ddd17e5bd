"""Rank services by their gain from sharing engines with zones, and report how many engines a shared pool saves.

Each trace is a recorded day of one service. Alone, a service has as many engines as its requests need to be in time.
Together, all services are tenants of one pool, whose zones reserve blocks in proportion to demand. Conversations are
assigned to engines by their hash, and only one engine of each service and of the pool is replayed.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_replay.commands import arguments
from tenantzone_replay.commands.option_types import part_of_all
from tenantzone_replay.results.tables import columns, percent
from tenantzone_replay.simulation.measures import Result
from tenantzone_replay.simulation.policies import STOCK, Policy, zone_names
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import Asked, TraceError, content_id
from tenantzone_replay.traces.mix import Source, mixed, parse_source

_LONGEST_NAME: Final = 200
"""Maximum number of characters of a file's name that become part of a service's name."""
_MOST_ENGINES: Final = 64
_SPARED: Final = 0.5
"""Smallest number of engines to try for the pool, as a fraction of the engines that are busy without sharing.

Fewer engines are not tried, because cache hits do not save that much work.
"""


@dataclass(frozen=True, slots=True)
class Alone:
    """A service that does not share its engines."""

    name: str
    engines: int
    result: Result
    """Result of the replayed engine. The service's other engines are not replayed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the services, the engine and the target."""
    arguments.add_load(parser)
    parser.add_argument(
        "--attain", type=part_of_all, default=0.95, metavar="PART",
        help="fraction of each service's requests that must be in time (default: %(default)s)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Print the services, those that save the most engines first, and then the number of engines of the pool.

    Raises:
        TraceError: a load can't be read, or even the maximum number of engines does not reach the target.
    """
    sources = [_named(parse_source(text), number) for number, text in enumerate(options.sources)]
    names = [source.tenant for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise TraceError(f"two services have the name {twice}; set different names with tenant=")
    setting = arguments.setting_of(options, sources)
    alone = [_alone(setting, source, options.attain) for source in sources]
    engines, together = _together(setting, sources, alone, options.attain)
    print(_table(alone, engines, together))
    absent = [each.name for each in alone if each.name not in together.tenants]
    if absent:
        print(
            f"only one of the {engines} engines was replayed, and it got no requests of {', '.join(absent)}, so their "
            "results in the pool are unknown; use longer traces of these services"
        )
    before = sum(each.engines for each in alone)
    spared = (
        f"{abs(before - engines)} {'fewer' if engines <= before else 'more'} ({abs(before - engines) / before:.0%})"
    )
    print(
        f"\n{before} engines of {setting.hardware.title} with {setting.shape.blocks:,} blocks serve {len(alone)} "
        f"services on engines of their own; together, with zones, {engines} do: {spared}"
    )


def _named(source: Source, number: int) -> Source:
    if source.tenant:
        return source
    name = printable(source.path.name.partition(".")[0], _LONGEST_NAME)
    return replace(source, tenant=f"{name}-{number}")


def _alone(setting: Setting, source: Source, wanted: float) -> Alone:
    for engines in range(1, _MOST_ENGINES + 1):
        result = _replayed(setting, [source], engines, STOCK)
        if result.attainment >= wanted:
            return Alone(source.tenant, engines, result)
    raise TraceError(
        f"{source.tenant}: even {_MOST_ENGINES} engines serve less than {percent(wanted)} of its requests in time; "
        "increase --ttft or --tpot, or lower --attain"
    )


def _together(setting: Setting, sources: Sequence[Source], alone: Sequence[Alone], wanted: float) -> tuple[int, Result]:
    least = math.ceil(_SPARED * sum(each.result.utilization * each.engines for each in alone))
    for engines in range(max(1, least), _MOST_ENGINES + 1):
        policy = Policy("zones", "ours", zones=_zones(setting, alone))
        result = _replayed(setting, sources, engines, policy)
        if min(each.attainment for each in result.tenants.values()) >= wanted:
            return engines, result
    raise TraceError(
        f"the target is missed even if all services share {_MOST_ENGINES} engines; increase --ttft or --tpot, or lower "
        "--attain"
    )


def _zones(setting: Setting, alone: Sequence[Alone]) -> tuple[ZoneConfig, ...]:
    """Returns zones that divide all blocks in proportion to the engines that each service keeps busy without sharing.

    This number of engines is the service's number of engines times their utilization.
    """
    needed = {each.name: max(each.result.utilization, 0.01) * each.engines for each in alone}
    total = sum(needed.values())
    return tuple(
        ZoneConfig(
            name=zone,
            tenant=name,
            generation=1,
            reserved=int(setting.shape.blocks * part / total),
            weight=max(1, round(10 * part / total)),
        )
        for zone, (name, part) in zip(zone_names(list(needed)), needed.items(), strict=True)
    )


def _replayed(setting: Setting, sources: Sequence[Source], engines: int, policy: Policy) -> Result:
    from tenantzone_replay.simulation.replay import replay

    load = partial(_part, sources, engines)
    found = profile(load())
    if not found.requests:
        raise TraceError(f"one of {engines} engines gets no requests; use loads with more conversations")
    result = replay(replace(setting, load=load, profile=found), policy)
    names = " and ".join(source.tenant for source in sources) if len(sources) < 3 else f"{len(sources)} services"
    print(
        f"  {names} on {engines} engines: {result.attainment:.1%} in time, {result.took_seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )
    return result


def _part(sources: Sequence[Source], engines: int) -> Iterator[Asked]:
    """Returns the requests that one engine gets if a hash of tenant and conversation selects among ``engines`` engines.

    The hash includes the tenant, because conversations of different services may have the same number.
    """
    every = mixed(sources)
    return (asked for asked in every if content_id(f"{asked.tenant}/{asked.conversation}") % engines == 0)


def _table(alone: Sequence[Alone], engines: int, together: Result) -> str:
    rows: list[Sequence[str]] = [
        ("service", "engines alone", "busy", "of the pool", "frees", "TTFT p99 alone", "in the pool", "hit rate alone",
         "in the pool")
    ]  # fmt: skip
    whole = sum(each.block_seconds for each in together.tenants.values()) or 1.0
    parts = {name: engines * each.block_seconds / whole for name, each in together.tenants.items()}
    # Services without requests on the replayed engine come last.
    for each in sorted(alone, key=lambda each: parts.get(each.name, math.inf) - each.engines):
        in_pool = together.tenants.get(each.name)
        part = parts.get(each.name, 0.0)
        rows.append(
            (
                each.name,
                str(each.engines),
                f"{each.result.utilization:.0%}",
                f"{part:.1f}" if in_pool else "-",
                f"{each.engines - part:.1f}" if in_pool else "-",
                f"{each.result.first_token().quantile(0.99):.2f} s",
                f"{in_pool.first_token.quantile(0.99):.2f} s" if in_pool else "-",
                f"{each.result.hit_rate:.1%}",
                f"{in_pool.hit_rate:.1%}" if in_pool else "-",
            )
        )
    return columns(rows)
