"""What users say of a load and of an engine, for each command alike."""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tenantzone_contract.config import ConfigError, ZoneConfig
from tenantzone_contract.config_text import parse_config
from tenantzone_replay.hardware import MODELS, Hardware
from tenantzone_replay.load import MAX_BLOCKS, MAX_TENANTS, Asked, TraceError
from tenantzone_replay.measured import read_measured
from tenantzone_replay.measures import Target
from tenantzone_replay.mix import Source, mixed, parse_source
from tenantzone_replay.policies import Policy, equal_zones, policies
from tenantzone_replay.profile import profile
from tenantzone_replay.setting import Setting
from tenantzone_replay.tenants import SHARES, Rule, with_tenants
from tenantzone_runtime.engine.engine_shape import EngineShape

_TIER_TIMES: Final = 4
"""As many blocks as the engine has are in a tier below it, if nothing else is said."""


def add_load(parser: argparse.ArgumentParser) -> None:
    """Arguments that say what is asked for, and of which engine."""
    load = parser.add_argument_group("the load")
    load.add_argument(
        "sources",
        nargs="+",
        metavar="TRACE",
        help="FILE[,format=F][,rate=2][,shift=SECONDS][,burst=START:SECONDS:TIMES][,tenant=NAME][,requests=N]; "
        "several are mixed; 'chats[,tenants=8][,skew=1][,turns=6][,…]' are made up",
    )
    load.add_argument("--tenants", type=_tenants, default=8, help="where the trace names none (default: %(default)s)")
    load.add_argument("--rule", choices=SHARES, default="zipf", help="of their parts (default: %(default)s)")
    engine = parser.add_argument_group("the engine")
    engine.add_argument("--model", choices=MODELS, default="8b", help="default: %(default)s")
    engine.add_argument("--gpus", type=_positive, help="of the model's kind (default: as many as it needs)")
    engine.add_argument(
        "--profile", type=Path, metavar="FILE", help="an engine that fit has measured, in place of both"
    )
    engine.add_argument("--blocks", type=_positive, help="default: what fits beside the model")
    engine.add_argument("--block-tokens", type=_positive, help="default: as the trace has them")
    engine.add_argument("--seats", type=_positive, default=256, help="--max-num-seqs (default: %(default)s)")
    engine.add_argument("--step-tokens", type=_positive, default=8192, help="default: %(default)s")
    engine.add_argument("--steps-in-flight", type=int, choices=(1, 2), default=1, help="default: %(default)s")
    engine.add_argument(
        "--in-flight",
        type=_positive,
        metavar="N",
        help="N requests at a time, whenever they came (default: as they came)",
    )
    engine.add_argument("--zones", type=Path, metavar="FILE", help="a pool's config.json (default: equal reservations)")
    engine.add_argument(
        "--tier-blocks", type=_positive, help="of CPU memory below the engine (default: four times the engine's)"
    )
    target = parser.add_argument_group("what is in time")
    target.add_argument("--ttft", type=float, default=2.0, help="seconds to the first token (default: %(default)s)")
    target.add_argument("--tpot", type=float, default=0.1, help="seconds from token to token (default: %(default)s)")


def setting_of(options: argparse.Namespace) -> Setting:
    """The load and the engine that were asked for.

    Raises:
        TraceError: the load can't be read, or there is nothing in it.
    """
    sources = [parse_source(text) for text in options.sources]
    load = partial(_begin, sources, options.tenants, options.rule)
    found = profile(load())
    if not found.requests:
        raise TraceError(f"there is no request in {', '.join(options.sources)}")
    hardware = _hardware(options)
    block_tokens = options.block_tokens or found.content_tokens
    shape = EngineShape(
        blocks=options.blocks or hardware.blocks(block_tokens),
        block_tokens=block_tokens,
        seats=options.seats,
        step_tokens=options.step_tokens,
        longest=max(found.longest, options.step_tokens),
    )
    if shape.blocks < 1:
        needed = "--blocks" if options.profile else "more --gpus"
        raise TraceError(f"{hardware.title} leaves no room for a cache: name {needed}")
    if shape.blocks > MAX_BLOCKS:
        raise TraceError(
            f"an engine of {shape.blocks:,} blocks is more than {MAX_BLOCKS:,}: each is an object of vLLM's"
        )
    target = Target(options.ttft, options.tpot)
    return Setting(load, found, shape, hardware, target, options.steps_in_flight, options.in_flight)


def zones_of(options: argparse.Namespace, tenants: list[str], blocks: int) -> tuple[ZoneConfig, ...]:
    """The zones of a pool's config, or one for each tenant that all reserve alike.

    Raises:
        TraceError: the config can't be used, or lacks the zone of a tenant.
    """
    if options.zones is None:
        return equal_zones(tenants, blocks)
    try:
        zones = parse_config(options.zones.read_text()).zones
    except (OSError, ConfigError) as error:
        raise TraceError(f"{options.zones}: {error}") from None
    missing = set(tenants) - {zone.tenant for zone in zones}
    if missing:
        raise TraceError(f"{options.zones} has no zone for {', '.join(sorted(missing)[:5])}, who ask in the load")
    return zones


def policies_of(options: argparse.Namespace, setting: Setting, zones: Sequence[ZoneConfig]) -> dict[str, Policy]:
    """All policies for this load and engine, by name."""
    demand = {tenant: each.prompt_tokens + each.output_tokens for tenant, each in setting.profile.demand.items()}
    blocks = setting.shape.blocks
    tier_blocks = options.tier_blocks or _TIER_TIMES * blocks
    return policies(zones, blocks, setting.hardware.prompt_tokens_per_second, demand, tier_blocks)


def _begin(sources: list[Source], tenants: int, rule: Rule) -> Iterator[Asked]:
    return with_tenants(mixed(sources), tenants, rule)


def _hardware(options: argparse.Namespace) -> Hardware:
    if options.profile is None:
        return MODELS[options.model] if options.gpus is None else MODELS[options.model].on(options.gpus)
    if options.gpus is not None:
        raise TraceError("--gpus and --profile can't be used together: the engine was measured as it is")
    return read_measured(options.profile)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _tenants(text: str) -> int:
    number = _positive(text)
    if number > MAX_TENANTS:
        raise argparse.ArgumentTypeError(f"{text} are more than {MAX_TENANTS:,}, as many as are compared")
    return number


def part(text: str) -> float:
    """A part of something as users write it: 0.5, or 50%."""
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = 0.0
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text} is no part above 0, such as 0.5 or 50%")
    return found
