"""Measure the cost of isolation, by replaying a load as if it came from 1 to 64 tenants who share no cached prefixes.

For each number of tenants, the load's conversations are assigned to tenants by the rule. The load is replayed with
stock vLLM and shared prefixes, with a salt for each tenant, and with zones that have equal reservations.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tenantzone_replay.commands import arguments
from tenantzone_replay.commands.option_types import tenants
from tenantzone_replay.results.tables import columns
from tenantzone_replay.simulation.measures import Result
from tenantzone_replay.simulation.policies import equal_zones
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.traces.load import Asked, TraceError
from tenantzone_replay.traces.mix import Source, mixed, parse_source
from tenantzone_replay.traces.tenants import Rule, with_tenants

_POLICIES: Final = ("stock", "salted", "zones")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the load and the numbers of tenants to compare."""
    arguments.add_load(parser)
    parser.add_argument(
        "--counts",
        type=tenants,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32, 64],
        help="numbers of tenants to compare (default: 1 2 4 ... 64)",
    )


def run(options: argparse.Namespace) -> None:
    """Print one line for each number of tenants.

    Raises:
        TraceError: the load can't be read, or already names its tenants.
    """
    from tenantzone_replay.simulation.replay import replay

    sources = [parse_source(text) for text in options.sources]
    if any(asked.tenant for asked in mixed(sources)):
        raise TraceError(
            "isolation needs a load without tenants; use a trace whose requests name no tenant, and omit tenant="
        )
    at = arguments.setting_of(options, sources)
    rows: list[Sequence[str]] = [
        (
            "tenants",
            "shared by all",
            "a salt each",
            "zones",
            "computed again",
            "TTFT p50 shared",
            "a salt each",
            "zones",
        )
    ]
    for count in options.counts:
        load = partial(_load, sources, count, options.rule)
        setting = replace(at, load=load, profile=profile(load()))
        every = arguments.policies_of(setting, equal_zones(list(setting.profile.demand), setting.shape.blocks))
        results = []
        for name in _POLICIES:
            results.append(replay(setting, every[name]))
            print(f"  {count} tenants, {name}: in {results[-1].took_seconds:.1f} s", file=sys.stderr, flush=True)
        rows.append(_row(count, results))
    print(columns(rows))


def _row(count: int, results: Sequence[Result]) -> Sequence[str]:
    shared, salted, zones = results
    # Relative increase of computed tokens: with salts, prefixes of one tenant must be computed again for other tenants.
    price = (1 - salted.hit_rate) / max(1e-9, 1 - shared.hit_rate) - 1
    return (
        str(count),
        *(f"{each.hit_rate:.1%}" for each in (shared, salted, zones)),
        f"{price:+.1%}",
        *(f"{each.first_token().quantile(0.5):.2f} s" for each in (shared, salted, zones)),
    )


def _load(sources: Sequence[Source], count: int, rule: Rule) -> Iterator[Asked]:
    return with_tenants(mixed(sources), count, rule)
