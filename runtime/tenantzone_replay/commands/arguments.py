"""Command-line arguments for a load and an engine, which several commands share."""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tenantzone_contract.zone_config.config import RuntimeConfig, Watermarks, ZoneConfig
from tenantzone_replay.commands.option_types import amount, tenants, whole
from tenantzone_replay.engine.measured import read_measured
from tenantzone_replay.simulation.hardware import MODELS, Hardware
from tenantzone_replay.simulation.measures import Target
from tenantzone_replay.simulation.policies import NO_WATERMARKS, Policy, equal_zones, policies
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import MAX_BLOCKS, MAX_TOKENS, Asked, TraceError
from tenantzone_replay.traces.mix import Source, mixed, parse_source
from tenantzone_replay.traces.tenants import NAME_RULE, SHARES, Rule, can_have_zone, with_tenants
from tenantzone_replay.traces.zone_files import read_zones
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape

_TIER_TIMES: Final = 4
"""Default size of the CPU memory tier, as a multiple of the engine's blocks."""


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the load, its tenants, the engine and the latency target."""
    add_sources(parser)
    who = parser.add_argument_group("the load's tenants")
    who.add_argument(
        "--tenants", type=tenants, default=8, help="number of tenants if the trace names none (default: %(default)s)"
    )
    who.add_argument(
        "--rule",
        choices=SHARES,
        default="zipf",
        help="distribution of the load among these tenants (default: %(default)s)",
    )
    add_engine(parser)
    room = parser.add_argument_group("the engine's memory and seats")
    room.add_argument("--blocks", type=whole(), help="KV-cache blocks (default: all that fit next to the model)")
    room.add_argument("--block-tokens", type=whole(), help="tokens per block (default: as in the trace)")
    room.add_argument("--seats", type=whole(), default=256, help="vLLM's --max-num-seqs (default: %(default)s)")
    room.add_argument(
        "--in-flight",
        type=whole(),
        metavar="N",
        help="keep N requests in flight and ignore arrival times (default: use arrival times)",
    )
    target = parser.add_argument_group("the latency target")
    target.add_argument(
        "--ttft", type=amount, default=2.0, help="maximum seconds to the first token (default: %(default)s)"
    )
    target.add_argument(
        "--tpot", type=amount, default=0.1, help="maximum seconds from token to token (default: %(default)s)"
    )


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the traces to replay."""
    load = parser.add_argument_group("the load")
    load.add_argument(
        "sources",
        nargs="+",
        metavar="TRACE",
        help="FILE[,format=F][,rate=2][,shift=SECONDS][,burst=START:SECONDS:TIMES][,tenant=NAME][,requests=N]; "
        "several traces are mixed; 'chats[,tenants=8][,skew=1][,turns=6][,…]' is a synthetic load",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that determine how long and how large an engine's steps are. None of them is about memory."""
    engine = parser.add_argument_group("the engine")
    engine.add_argument("--model", choices=MODELS, default="8b", help="default: %(default)s")
    engine.add_argument("--gpus", type=whole(), help="number of the model's GPUs (default: as many as the model needs)")
    engine.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="an engine that the command fit has measured, in place of --model and --gpus",
    )
    engine.add_argument("--step-tokens", type=whole(most=2 * MAX_TOKENS), default=8192, help="default: %(default)s")
    engine.add_argument("--steps-in-flight", type=int, choices=(1, 2), default=1, help="default: %(default)s")


def add_zones(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a pool's zones and its CPU memory tier."""
    pool = parser.add_argument_group("the pool")
    pool.add_argument(
        "--zones",
        type=Path,
        metavar="FILE",
        help="a pool's config.json, or TenantZones as kubectl reads and prints them (default: equal reservations)",
    )
    pool.add_argument(
        "--tier-blocks",
        type=whole(most=MAX_BLOCKS),
        help="blocks of the CPU memory tier (default: four times the engine's blocks)",
    )


def setting_of(options: argparse.Namespace, sources: Sequence[Source] | None = None) -> Setting:
    """Returns the load and the engine that the options describe.

    Args:
        options: the parsed options.
        sources: the sources of the load. If None, the sources that the options name.

    Raises:
        TraceError: the load can't be read, or is empty.
    """
    if sources is None:
        sources = [parse_source(text) for text in options.sources]
    load = partial(_begin, sources, options.tenants, options.rule)
    found = profile(load())
    if not found.requests:
        raise TraceError(f"the load has no requests: {', '.join(options.sources)}")
    hardware = _hardware(options)
    block_tokens = options.block_tokens or found.content_tokens
    if options.step_tokens < options.seats:
        raise TraceError(
            f"--step-tokens {options.step_tokens:,} is less than --seats {options.seats:,}, but each running request "
            f"needs at least one token per step; raise --step-tokens or lower --seats"
        )
    shape = EngineShape(
        blocks=options.blocks or hardware.blocks(block_tokens),
        block_tokens=block_tokens,
        seats=options.seats,
        step_tokens=options.step_tokens,
        longest=max(found.longest, options.step_tokens),
    )
    if shape.blocks < 1:
        remedy = "set --blocks" if options.profile else "raise --gpus"
        raise TraceError(f"{hardware.title} leaves no room for a cache; {remedy}")
    if shape.blocks > MAX_BLOCKS:
        raise TraceError(f"an engine of {shape.blocks:,} blocks is too large; set --blocks to at most {MAX_BLOCKS:,}")
    target = Target(options.ttft, options.tpot)
    return Setting(load, found, shape, hardware, target, options.steps_in_flight, options.in_flight)


def check_sizes(setting: Setting, times: Sequence[float], option: str) -> None:
    """Check sizes before the first replay, and reject sizes that are too large.

    Args:
        setting: the load and the engine.
        times: the sizes, as multiples of the engine's blocks.
        option: the name of the option with these sizes, for the message.

    Raises:
        TraceError: a size is too large.
    """
    largest = max(times, default=0.0)
    if setting.shape.blocks * largest > MAX_BLOCKS:
        raise TraceError(
            f"{option}: {largest:g} times {setting.shape.blocks:,} blocks exceeds the maximum of {MAX_BLOCKS:,} "
            "blocks; use a smaller value"
        )


def zones_of(options: argparse.Namespace, tenants: list[str], blocks: int) -> tuple[tuple[ZoneConfig, ...], Watermarks]:
    """Returns the zones and the watermarks in the file that the option ``--zones`` names.

    Without ``--zones``, returns equal zones for all tenants, and no watermarks.

    Raises:
        OSError: the file can't be read.
        TraceError: the file is invalid, or a tenant has no zone.
    """
    if options.zones is None:
        return equal_zones(tenants, blocks), NO_WATERMARKS
    config = config_of(options.zones, tenants, blocks)
    return config.zones, config.pool.watermarks


def config_of(path: Path, tenants: Sequence[str], blocks: int) -> RuntimeConfig:
    """Read the zones of a pool from a file, and check that each tenant has a zone.

    Args:
        path: the file.
        tenants: the tenants that have requests in the load.
        blocks: the number of blocks of an engine. The zones' reservations must not exceed it.

    Raises:
        OSError: the file can't be read.
        TraceError: the file is invalid, or a tenant has no zone.
    """
    config = read_zones(path, blocks)
    missing = set(tenants) - {zone.tenant for zone in config.zones}
    if missing:
        unnamed = {tenant for tenant in missing if not can_have_zone(tenant)}
        named = ", ".join(sorted(unnamed or missing)[:5])
        remedy = NAME_RULE if unnamed else "add a zone for each of them"
        raise TraceError(f"{path} has no zone for these tenants of the load: {named}; {remedy}")
    return config


def policies_of(
    setting: Setting,
    zones: Sequence[ZoneConfig],
    tier_blocks: int | None = None,
    watermarks: Watermarks = NO_WATERMARKS,
) -> dict[str, Policy]:
    """Returns all policies for a load and an engine, by name. By default, the tier has 4 times the engine's blocks."""
    demand = {tenant: each.prompt_tokens + each.output_tokens for tenant, each in setting.profile.demand.items()}
    blocks = setting.shape.blocks
    tier_blocks = tier_blocks or _TIER_TIMES * blocks
    return policies(zones, blocks, setting.hardware.prompt_tokens_per_second, demand, tier_blocks, watermarks)


def _begin(sources: Sequence[Source], tenants: int, rule: Rule) -> Iterator[Asked]:
    return with_tenants(mixed(sources), tenants, rule)


def _hardware(options: argparse.Namespace) -> Hardware:
    if options.profile is None:
        return MODELS[options.model] if options.gpus is None else MODELS[options.model].on(options.gpus)
    if options.gpus is not None:
        raise TraceError(
            "--gpus and --profile can't be used together, because a profile is of an engine with a fixed number of GPUs"
        )
    return read_measured(options.profile)
