"""Reduces engines' reports to the fields that the operator uses, because many large reports are in memory."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_contract.quantity import MAX_COUNT
from tenantzone_contract.reports.report import ApiServerReport, EngineReport
from tenantzone_contract.reports.words import EvictionReason
from tenantzone_contract.reports.zone_report import LatencyReport, PurgeReport, ZoneReport, ZoneTierReport
from tenantzone_contract.text import printable

_LONGEST_ERROR = 1000
_HASH_CHARACTERS = 20
_IN_THREAD_ZONES = 200
_TAKEN_BACK: tuple[EvictionReason, ...] = ("reclaim", "due")
"""Eviction reasons that mean that a zone lost borrowed blocks."""
_FOR_ROOM: tuple[EvictionReason, ...] = ("quiet", "reclaim", "own", "relief")
"""Eviction reasons that mean that a request needed the blocks; the reason ``limit`` is counted separately."""


@dataclass(frozen=True, slots=True)
class ZoneView:
    """A declared zone in one engine's report, with evictions summed by cause."""

    generation: int
    state: str
    reserved: int
    limit: int
    in_use: int
    cached: int
    lent: int
    borrowed: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    computed_first_tokens: int
    recomputed_tokens: int
    blocks_evicted: int
    taken_back: int
    """Number of evicted blocks that the zone had borrowed."""
    awaited_seats: int
    """Number of seats that the zone's spec reserves explicitly but that the engine lacks."""
    waiting_for: str | None = None
    """Why the zone's next request waits; None if no request waits."""
    evicted_by_limit: int = 0
    """Number of blocks that were evicted because the zone was at its own limit."""
    evicted_by_ttl: int = 0
    """Number of blocks that were evicted because no request used them within the zone's ttl."""
    evicted_by_watermark: int = 0
    """Number of blocks that the watermarks evicted before any zone needed them."""
    evicted_for_room: int = 0
    """Number of blocks that were evicted because requests of this or other zones needed them."""
    purge: PurgeReport | None = None
    """The last purge of the zone that the engine has carried out; None if there was none."""
    unscrubbed: int = 0
    """Number of free blocks that still contain the zone's data; reported only after a purge."""
    latency: LatencyReport | None = None
    """State of the zone's latency targets; None if the zone has no targets."""
    tiers: tuple[ZoneTierReport, ...] = ()
    """Reports on the zone in each tier of the engine; empty if the engine has no tiers."""


@dataclass(frozen=True, slots=True)
class TierView:
    """A tier of an engine, without the numbers that change with each request."""

    capacity_bytes: int
    """Capacity in bytes, rounded down to whole chunks."""
    chunk_bytes: int
    problem: str
    """Why the tier can't store or load, in the engine's words; empty if the tier works."""


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine's report, reduced to the fields that statuses and plans need."""

    capacity_blocks: int
    seats: int
    """Maximum number of requests that the engine runs at once."""
    applied_generation: int | None
    applied_hash: str | None
    nack: str
    """Why the engine refuses the newest config, in the engine's words; empty if it does not refuse."""
    is_untrusted: bool
    """Whether the engine refuses a config because of an invalid signature, or because it has a newer config."""
    identity: str
    """Digest of the identity declaration that the frontend applies."""
    identity_problem: str
    """Why the frontend serves no tenant, in the engine's words; empty if it serves tenants."""
    zones: Mapping[str, ZoneView]
    """Declared zones, by name."""
    salt_key_id: str
    """Id of the salt key; empty if the engine has generated its own key."""
    salt_key_error: str
    """Why the engine rejects its salt key file, in the engine's words; empty if it uses the file or has no file."""
    admin_is_open: bool
    """Whether the admin port answers without a token."""
    admin_error: str
    """Why the engine rejects the current token file, in the engine's words; empty if it uses the file."""
    tiers: Mapping[str, TierView]
    """KV-cache tiers of the engine, by name."""
    api_servers: tuple[tuple[int | None, str | None], ...] = ()
    """Generation and hash of the config that each API server process enforces; empty if no process has reported yet."""
    newest_generation: int = 0
    """Generation of the newest config that the engine knows, if it refuses an older config; 0 otherwise."""
    lag: str = ""
    """Text that says how an API server process persistently differs from the engine core; empty if none differs."""

    @property
    def enforced(self) -> tuple[tuple[int | None, str | None], ...]:
        """Generation and hash of the config that each process of the engine enforces. The engine core comes first."""
        return ((self.applied_generation, self.applied_hash), *self.api_servers)


def view(report: EngineReport) -> EngineView:
    """Returns the parts of an engine's report that the operator uses."""
    config = report.config
    return EngineView(
        capacity_blocks=report.capacity_blocks,
        seats=report.seats,
        applied_generation=config.applied_generation,
        applied_hash=config.applied_hash,
        nack=printable(config.rejected.error, _LONGEST_ERROR) if config.rejected is not None else "",
        is_untrusted=config.rejected is not None and config.rejected.untrusted,
        newest_generation=(config.rejected.newest_generation or 0) if config.rejected is not None else 0,
        identity=report.identity.digest,
        identity_problem=printable(report.identity.problem, _LONGEST_ERROR),
        # Leave out auto-registered zones: they are named after tenants, and a TenantZone with such a name may belong to
        # another tenant.
        zones={sys.intern(zone.name): zone_view(zone) for zone in report.zones if not zone.auto_registered},
        salt_key_id=report.salt_key.id,
        salt_key_error=printable(report.salt_key.error, _LONGEST_ERROR),
        admin_is_open=report.admin_port.open,
        admin_error=printable(report.admin_port.error, _LONGEST_ERROR),
        tiers={
            sys.intern(tier.tier): TierView(
                tier.capacity_bytes, tier.chunk_bytes, printable(tier.problem, _LONGEST_ERROR)
            )
            for tier in report.tiers
        },
        api_servers=tuple((each.config_generation, each.config_hash) for each in report.api_servers or ()),
        lag=next((_lag(each, config.applied_hash) for each in report.api_servers or () if each.lags), "")
        or _missing(report.missing_api_servers),
    )


def _lag(process: ApiServerReport, applied_hash: str | None) -> str:
    """Returns a text that says how an API server process differs from its engine core."""
    words = {
        "config": f"enforces config {_short(process.config_hash)}, not {_short(applied_hash)}",
        "keys": "uses API keys that differ from its key files",
        "salt_key": "uses another salt key than the engine core",
        "silent": "does not report the config that it enforces",
    }
    found = [words.get(lag, f"differs in {printable(lag, _LONGEST_ERROR)}") for lag in process.lags]
    return f"API server process {process.process} {' and '.join(found)}"


def _missing(count: int) -> str:
    """Returns a text that says how many API server processes have never reported; empty if all have reported."""
    if not count:
        return ""
    return (
        f"{count} of the engine's API server processes {'has' if count == 1 else 'have'} not reported since its start"
    )


def _short(config_hash: str | None) -> str:
    return "none" if config_hash is None else printable(config_hash, _HASH_CHARACTERS)


async def view_aside(report: EngineReport) -> EngineView:
    """Like `view`, but reduces reports with many zones in a thread, so that the event loop is not blocked."""
    if len(report.zones) <= _IN_THREAD_ZONES:
        return view(report)
    return await asyncio.to_thread(view, report)


def zone_view(report: ZoneReport) -> ZoneView:
    """Returns the parts of a zone's report that the operator uses."""
    evicted = report.evictions
    return ZoneView(
        generation=report.generation,
        state=sys.intern(report.state),
        reserved=report.reserved,
        limit=report.limit,
        in_use=report.in_use,
        cached=report.cached,
        lent=report.lent,
        borrowed=report.borrowed,
        prefix_query_tokens=report.prefix_query_tokens,
        prefix_hit_tokens=report.prefix_hit_tokens,
        computed_first_tokens=report.computed_first_tokens,
        recomputed_tokens=report.recomputed_tokens,
        blocks_evicted=min(report.blocks_evicted, MAX_COUNT),
        taken_back=sum(evicted.get(reason, 0) for reason in _TAKEN_BACK) if evicted else 0,
        awaited_seats=report.awaited_seats,
        waiting_for=sys.intern(report.waits_for) if report.waits_for is not None else None,
        evicted_by_limit=evicted.get("limit", 0),
        evicted_by_ttl=evicted.get("ttl", 0),
        evicted_by_watermark=evicted.get("watermark", 0),
        evicted_for_room=sum(evicted.get(reason, 0) for reason in _FOR_ROOM),
        purge=report.purge,
        # Without a purge, use 0. No status shows the number then, and its changes would make each report differ.
        unscrubbed=report.unscrubbed_blocks if report.purge is not None else 0,
        latency=report.latency,
        tiers=report.tiers,
    )
