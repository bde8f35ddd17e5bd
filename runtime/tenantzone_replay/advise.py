"""Find the zones that need the least memory for a target, by replaying a load many times."""

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from tenantzone_replay import arguments
from tenantzone_replay.advice import as_yaml, choose, front_table, nobodys, return_table
from tenantzone_replay.load import TraceError
from tenantzone_replay.search import SIZES, Candidate, search
from tenantzone_replay.setting import Setting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the load, and of what is wanted."""
    arguments.add_load(parser)
    parser.add_argument(
        "--attain", type=_part, default=0.95, metavar="PART", help="of each tenant's requests (default: %(default)s)"
    )
    parser.add_argument(
        "--trials", type=int, default=40, help=f"besides {len(SIZES)} with equal zones (default: %(default)s)"
    )
    parser.add_argument(
        "--tiers", type=float, nargs="+", default=[0.0], metavar="TIMES",
        help="sizes of a tier of CPU memory that are tried, as times the engine's blocks (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--tier-price", type=float, default=0.1, help="of a block of it, to the engine's (default: %(default)s)"
    )
    parser.add_argument("--gpu-hour", type=float, metavar="MONEY", help="what a GPU costs in an hour, for the return")
    parser.add_argument(
        "--held-out", nargs="+", action="append", default=[], metavar="TRACE",
        help="a load that the search does not see (sources as above, mixed); give it once for each load",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of the trials (default: %(default)s)")
    parser.add_argument("--pool", default="pool", metavar="NAME", help="of the zones (default: %(default)s)")
    parser.add_argument("--yaml", type=Path, metavar="FILE", help="write the zones there (default: print them)")


def run(options: argparse.Namespace) -> None:
    """Print what memory brings, and the zones that are advised.

    Raises:
        TraceError: the load can't be read, or Optuna is not there.
    """
    setting = arguments.setting_of(options)
    if left_out := nobodys(setting.profile.demand):
        print(left_out, file=sys.stderr, flush=True)
    try:
        tried = search(setting, options.trials, options.seed, _tell, options.tiers, options.tier_price)
    except ImportError:
        raise TraceError("advice needs Optuna: pip install 'tenantzone[advice]'") from None
    chosen = choose(tried, options.attain)
    text = as_yaml(chosen, tried, setting, options.attain, options.pool)
    print(f"{front_table(tried, setting)}\n\n{return_table(tried, setting, options.gpu_hour)}")
    if options.held_out:
        print(f"\n{_held_out(options, chosen, setting)}")
    if options.yaml:
        options.yaml.write_text(text)
    else:
        print(f"\n{text}", end="")


def _held_out(options: argparse.Namespace, chosen: Candidate, setting: Setting) -> str:
    from tenantzone_replay.held_out import trials_table, try_on

    sizes = [int(setting.shape.blocks * size) for size in SIZES]
    trials = []
    for sources in options.held_out:
        # The engine stays what it is, whatever the load's own blocks are.
        other = arguments.setting_of(argparse.Namespace(**{**vars(options), "sources": sources}))
        other = replace(other, shape=replace(setting.shape, longest=other.shape.longest))
        told = partial(print, file=sys.stderr, flush=True)
        load = " ".join(sources)
        trials.append(try_on(load, other, chosen.zones, chosen.blocks, sizes, options.attain, told, chosen.tier_blocks))
    return trials_table(trials, chosen.blocks)


def _tell(each: Candidate) -> None:
    print(
        f"  {each.blocks:,} blocks: worst tenant {each.worst:.1%} in time, {each.result.took_seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )


def _part(text: str) -> float:
    found = arguments.part(text)
    if found > 1:
        raise argparse.ArgumentTypeError(f"{text} is no part above 0 and up to 1, such as 0.95 or 95%")
    return found
