"""Replay a load under several policies, with zones and with stock vLLM, and compare the results.

vLLM's real scheduler runs in virtual time.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from pathlib import Path

from tenantzone_contract.text import printable
from tenantzone_replay.commands import arguments
from tenantzone_replay.commands.option_types import file_to_write, folder_to_write, part
from tenantzone_replay.results.tables import tables
from tenantzone_replay.simulation.locality import lines
from tenantzone_replay.simulation.measures import Result
from tenantzone_replay.simulation.policies import NAMES, Policy
from tenantzone_replay.traces.load import TraceError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the load, the pool, the policies and the output."""
    arguments.add_load(parser)
    arguments.add_zones(parser)
    parser.add_argument(
        "--policies", nargs="+", choices=NAMES, default=list(NAMES), help="policies to compare (default: all)"
    )
    parser.add_argument(
        "--capacities", type=part, nargs="+", metavar="PART",
        help="other sizes to try for the curve of hit rates, relative to the blocks, for example 25%% 50%% 100%% 200%%",
    )  # fmt: skip
    parser.add_argument("--json", type=file_to_write, metavar="FILE", help="write all figures to this file")
    parser.add_argument(
        "--pictures",
        type=folder_to_write,
        metavar="DIR",
        help="write the report's pictures as SVG files to this folder",
    )
    parser.add_argument("--html", type=file_to_write, metavar="FILE", help="write a self-contained report to this file")


def run(options: argparse.Namespace) -> None:
    """Print a table of the policies, and a table of tenants for each policy.

    Raises:
        TraceError: the load can't be read, or an option is invalid for the load.
    """
    from tenantzone_replay.results.capacities import Curve, curves, curves_table
    from tenantzone_replay.simulation.replay import replay

    if options.capacities and set(options.policies) == {"infinite"}:
        raise TraceError(
            "--capacities has no effect on the policy 'infinite', which never runs out of blocks; choose other "
            "--policies"
        )
    _check_places({"--json": options.json, "--html": options.html, "--pictures": options.pictures})
    setting = arguments.setting_of(options)
    arguments.check_sizes(setting, options.capacities or [], "--capacities")
    zones, watermarks = arguments.zones_of(options, list(setting.profile.demand), setting.shape.blocks)
    make = partial(arguments.policies_of, tier_blocks=options.tier_blocks, watermarks=watermarks)
    every = make(setting, zones)
    about = {
        "load": f"{setting.profile.requests:,} requests of {len(setting.profile.demand)} tenants in "
        f"{setting.profile.seconds:,.0f} s",
        "memory": f"{setting.shape.blocks:,} blocks of {setting.shape.block_tokens} tokens",
        "model": setting.hardware.title,
    }
    _say("; ".join(about.values()))
    for line in lines(setting.profile.locality):
        _say(line)
    results = []
    for name in options.policies:
        result = replay(setting, every[name])
        _say(_line(every[name], result))
        results.append(result)
    print(tables(results))
    found: list[Curve] = []
    if options.capacities:
        found = curves(setting, zones, options.capacities, options.policies, make, _tell_capacity)
        print(f"\n{curves_table(found)}")
    locality = setting.profile.locality
    if options.json:
        from tenantzone_replay.results.as_json import as_json

        options.json.write_text(json.dumps(as_json(results, locality, found), indent=1) + "\n")
    if options.pictures:
        from tenantzone_replay.results.html import pictures
        from tenantzone_replay.results.pictures import as_file

        options.pictures.mkdir(parents=True, exist_ok=True)
        for name, (_, picture) in pictures(results, found).items():
            (options.pictures / f"{name}.svg").write_text(as_file(picture))
    if options.html:
        from tenantzone_replay.results.html import report

        load = printable(" ".join(options.sources))
        options.html.write_text(report(results, load, about | {"options": _given(options)}, locality, found))


def _given(options: argparse.Namespace) -> str:
    """Returns the options as command-line text, including default values, but without the load's sources."""
    given = []
    for name, value in vars(options).items():
        if value is not None and name != "sources":
            values = value if isinstance(value, list) else [value]
            given.append(shlex.join([f"--{name.replace('_', '-')}", *map(str, values)]))
    return printable(" ".join(given))


def _check_places(places: Mapping[str, Path | None]) -> None:
    """Reject two output paths if they are equal, or if one is a parent folder of the other.

    Raises:
        TraceError: two paths collide.
    """
    real = {option: Path(os.path.realpath(path)) for option, path in places.items() if path}
    for (first, file), (second, other) in combinations(real.items(), 2):
        # Only the last path is a folder. Its parent folders may be created too, so none of them may be an output file.
        if file == other or file in other.parents:
            raise TraceError(f"{first} and {second} would write to the same path; give one of them another path")


def _tell_capacity(result: Result) -> None:
    _say(f"  {result.policy} with {result.blocks:,} blocks: {result.hit_rate:.1%}, in {result.took_seconds:.1f} s")


def _line(policy: Policy, result: Result) -> str:
    return (
        f"  {policy.name}: {result.steps:,} steps, {result.seconds:,.0f} virtual seconds, "
        f"{result.utilization:.0%} busy, in {result.took_seconds:.1f} s"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
