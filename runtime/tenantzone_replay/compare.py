"""Serve a load by several policies side by side: vLLM's real scheduler in virtual time, stock and with zones."""

import argparse
import json
import sys
from pathlib import Path

from tenantzone_replay import arguments
from tenantzone_replay.as_json import as_json
from tenantzone_replay.measures import Result
from tenantzone_replay.policies import NAMES, Policy, policies
from tenantzone_replay.tables import tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the load, and of what is made of the comparison."""
    arguments.add_load(parser)
    parser.add_argument("--policies", nargs="+", choices=NAMES, default=list(NAMES), help="default: all of them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report there, which needs no network")


def run(options: argparse.Namespace) -> None:
    """Print a table of the policies, and one of the tenants of each.

    Raises:
        TraceError: the load can't be read, or an option does not fit it.
    """
    from tenantzone_replay.replay import replay

    setting = arguments.setting_of(options)
    zones = arguments.zones_of(options, list(setting.profile.demand), setting.shape.blocks)
    every = policies(zones, setting.shape.blocks, setting.hardware.prompt_tokens_per_second)
    _say(
        f"{setting.profile.requests:,} requests of {len(zones)} tenants in {setting.profile.seconds:,.0f} s; "
        f"{setting.shape.blocks:,} blocks of {setting.shape.block_tokens} tokens; {setting.hardware.title}"
    )
    results = []
    for name in options.policies:
        result = replay(setting, every[name])
        _say(_line(every[name], result))
        results.append(result)
    print(tables(results))
    if options.json:
        options.json.write_text(json.dumps(as_json(results), indent=1) + "\n")
    if options.html:
        from tenantzone_replay.html import report

        options.html.write_text(report(results, " ".join(options.sources)))


def _line(policy: Policy, result: Result) -> str:
    return (
        f"  {policy.name}: {result.steps:,} steps, {result.seconds:,.0f} virtual seconds, "
        f"{result.utilization:.0%} busy, in {result.took_seconds:.1f} s"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
