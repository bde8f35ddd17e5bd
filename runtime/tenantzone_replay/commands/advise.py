"""Find the zones that reach a latency target with the least memory, by replaying a load many times."""

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tenantzone_contract.extras import install_command
from tenantzone_contract.text import printable
from tenantzone_replay.commands import arguments
from tenantzone_replay.commands.option_types import amount, file_to_write, object_name, part_of_all, whole
from tenantzone_replay.results.advice import (
    as_yaml,
    beside_present,
    beside_stock,
    choose,
    front_table,
    named_as,
    nobodys,
    return_table,
)
from tenantzone_replay.search import SIZES, Candidate, narrowed, present, search, stock
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import TraceError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the load and the target."""
    arguments.add_load(parser)
    parser.add_argument(
        "--attain",
        type=part_of_all,
        default=0.95,
        metavar="PART",
        help="fraction of each tenant's requests that must be in time (default: %(default)s)",
    )
    parser.add_argument(
        "--trials",
        type=whole(0),
        default=40,
        help=f"number of trials, in addition to {len(SIZES)} with equal zones per tier, and the best with less memory "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--tiers", type=amount, nargs="+", default=[0.0], metavar="TIMES",
        help="sizes of the CPU memory tier to try, as multiples of the engine's blocks (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--tier-price",
        type=amount,
        default=0.1,
        help="price of a block of the tier relative to a block of the engine (default: %(default)s)",
    )
    parser.add_argument(
        "--gpu-hour", type=amount, metavar="MONEY", help="price of a GPU hour, for the table of returns"
    )
    parser.add_argument(
        "--held-out", nargs="+", action="append", default=[], metavar="TRACE",
        help="a load that is not used in the search (sources as above, mixed); repeat the option for each load",
    )  # fmt: skip
    parser.add_argument("--seed", type=whole(0), default=1, help="random seed of the trials (default: %(default)s)")
    parser.add_argument(
        "--zones", type=Path, metavar="FILE",
        help="the pool's current zones, which are compared with the advised zones and give them their names. A pool's "
        "config.json, or TenantZones as kubectl reads and prints them",
    )  # fmt: skip
    parser.add_argument(
        "--pool",
        type=object_name,
        metavar="NAME",
        help="name of the zones' ZonePool (default: the pool of --zones, or pool)",
    )
    parser.add_argument(
        "--yaml", type=file_to_write, metavar="FILE", help="write the zones to this file (default: print them)"
    )


def run(options: argparse.Namespace) -> None:
    """Print how attainment depends on the amount of memory, and print or write the advised zones.

    Raises:
        OSError: the file with the current zones can't be read, or the advised zones can't be written.
        TraceError: the load can't be read, the current zones can't be used, or Optuna is not installed.
    """
    if find_spec("optuna") is None:
        raise TraceError(f"advice needs Optuna; run {install_command('advice')}")
    setting = arguments.setting_of(options)
    least = math.ceil(1 / min(SIZES))
    if setting.shape.blocks < least:
        raise TraceError(f"advice also tries {min(SIZES):.0%} of the blocks, so --blocks must be {least} or more")
    arguments.check_sizes(setting, options.tiers, "--tiers")
    config = options.zones and arguments.config_of(options.zones, [*setting.profile.demand], setting.shape.blocks)
    held_out = {" ".join(sources): _held_out_setting(options, sources, setting) for sources in options.held_out}
    if left_out := nobodys(setting.profile.demand):
        print(left_out, file=sys.stderr, flush=True)
    searched = search(setting, options.trials, options.seed, _tell, options.attain, options.tiers, options.tier_price)
    tried = searched + narrowed(setting, searched, options.attain, _tell, options.tier_price)
    chosen = choose(tried, options.attain)
    without_zones, before = stock(setting, chosen.blocks), None
    if config is not None:
        before, chosen = present(setting, config.zones, config.pool.watermarks), named_as(chosen, config.zones)
    pool = options.pool or (config.pool.name if config is not None else "pool")
    text = as_yaml(chosen, tried, setting, options.attain, pool, without_zones, before)
    table = front_table(tried, setting, without_zones, before)
    print(f"{table}\n\n{return_table(searched, setting, options.gpu_hour)}")
    print(f"\n{beside_stock(chosen, without_zones, options.attain)}")
    if before is not None:
        print(beside_present(chosen, before, options.attain))
    if held_out:
        print(f"\n{_held_out(held_out, chosen, setting, options.attain)}")
    if options.yaml:
        options.yaml.write_text(text)
    else:
        print(f"\n{text}", end="")


def _held_out_setting(options: argparse.Namespace, sources: list[str], setting: Setting) -> Setting:
    """Returns the setting of a held-out load.

    Called before the search, so that an unknown tenant is reported at once instead of after a long search.
    """
    from tenantzone_replay.results.held_out import check_tenants

    other = arguments.setting_of(argparse.Namespace(**{**vars(options), "sources": sources}))
    check_tenants(" ".join(sources), other, setting.profile.demand)
    # Use the engine's shape from the search, even if the held-out load has another block size.
    return replace(other, shape=replace(setting.shape, longest=other.shape.longest))


def _held_out(held_out: Mapping[str, Setting], chosen: Candidate, setting: Setting, wanted: float) -> str:
    from tenantzone_replay.results.held_out import trials_table, try_on

    sizes = [int(setting.shape.blocks * size) for size in SIZES]
    say = partial(print, file=sys.stderr, flush=True)
    trials = []
    for load, other in held_out.items():
        say(f"held out: {printable(load)}")
        trials.append(
            try_on(printable(load), other, chosen.zones, chosen.blocks, sizes, wanted, say, chosen.tier_blocks)
        )
    return trials_table(trials, wanted)


def _tell(each: Candidate) -> None:
    print(
        f"  {each.blocks:,} blocks: worst tenant {each.worst:.1%} in time, {each.result.took_seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )
