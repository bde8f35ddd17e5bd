"""Models of an engine's report as the operator reads it. Any pod that matches a pool's labels may have sent it.

The contract package has its own models, for engines that write reports. The models here bound all numbers, so that any
accepted report can be shown in a status. They contain only the fields that the operator uses, so that a report takes
about as much memory as its text, and they ignore unknown fields, because an engine may be newer than the operator.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

import msgspec

from tenantzone_contract.reports.report import (
    EVICTIONS_IN_NEWER_WORDS,
    MAX_COUNT,
    MAX_SECONDS,
    MAX_TIERS,
    OlderWaitReason,
    ZoneState,
)

MAX_BLOCKS = 2**31 - 1
MAX_API_SERVERS = 1024
"""Maximum number of API server processes of one engine."""
MAX_LAGS = 16
"""Maximum number of differences between one API server process and its engine core."""

_BASE_BYTES = 64 * 2**10
_ZONE_BYTES = 4 * 2**10
"""Bytes for one zone in a report, several times the size of a zone and its loans."""
_REGISTERED_ZONES = 4096
"""Number of automatically registered zones that a report may contain in mode AutoRegister."""

Blocks = Annotated[int, msgspec.Meta(ge=0, le=MAX_BLOCKS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Name = Annotated[str, msgspec.Meta(max_length=253)]
TierName = Annotated[str, msgspec.Meta(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
UnixTime = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]

_IN_THREAD_BYTES = 64 * 2**10
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="reports")
"""Thread pool that parses long reports, so that they do not block the event loop."""


class PurgeReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The last purge of a zone that the engine has carried out, with its effect in blocks."""

    id: Name
    evicted: Count = 0
    withdrawn: Count = 0


Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]


class TargetReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One latency target of a zone, and the actual time of its requests."""

    target_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]
    actual_seconds: Seconds | None = None
    reason: Name = ""


class LatencyReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The latency targets of a zone."""

    token_time: TargetReport | None = None
    first_token: TargetReport | None = None


class TierEffectReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """How much a zone used a tier in the last window."""

    offered_bytes: Count
    loaded_bytes: Count
    ineffective: bool = False


class ZoneTierReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One zone in one tier of an engine; amounts that are not in bytes are in chunks."""

    tier: TierName
    reserved_bytes: Count
    limit_bytes: Count
    held_bytes: Count
    awaited_bytes: Count = 0
    hits: Count = 0
    evictions: Count = 0
    writes_refused: Count = 0
    writes_refused_within_reservation: Count = 0
    corrupt: Count = 0
    effect: TierEffectReport | None = None


class TierReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One tier of an engine."""

    tier: TierName
    capacity_bytes: Count
    held_bytes: Count
    chunk_bytes: Count
    problem: str = ""


class ZoneReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One zone on one engine, as in the contract's ``ZoneReport``."""

    name: Name
    tenant: Name
    generation: Count
    state: ZoneState
    reserved: Blocks
    limit: Blocks
    in_use: Blocks
    cached: Blocks
    waiting_requests: Count = 0
    running_requests: Count = 0
    reserved_seats: Count = 0
    computed_tokens: Count = 0
    prefix_query_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    computed_first_tokens: Count = 0
    recomputed_tokens: Count = 0
    evictions: dict[Name, Count] | None = None
    evicted_blocks: dict[Name, Count] = {}
    wait_reason: OlderWaitReason | None = None
    waits_for: Name | None = None
    auto_registered: bool = False
    lent: Blocks = 0
    borrowed: Blocks = 0
    awaited_seats: Count = 0

    @property
    def waiting_for(self) -> str | None:
        """Why the zone's next request waits, from the current field or the field of older releases."""
        return self.waits_for or self.wait_reason

    purge: PurgeReport | None = None
    unscrubbed_blocks: Blocks = 0
    latency: LatencyReport | None = None
    tiers: Annotated[tuple[ZoneTierReport, ...], msgspec.Meta(max_length=MAX_TIERS)] = ()

    @property
    def evicted(self) -> Mapping[str, int]:
        """Number of evicted blocks by reason, with the reasons of older releases renamed to the current reasons."""
        if self.evictions is not None:
            return self.evictions
        return {EVICTIONS_IN_NEWER_WORDS.get(reason, reason): count for reason, count in self.evicted_blocks.items()}


class Rejection(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A config that the engine refused, and the error."""

    error: str
    generation: Count | None = None
    untrusted: bool = False
    newest_generation: Count | None = None


class ConfigStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The config that the engine has applied, and the newer config that it refused, if any."""

    applied_generation: Count | None = None
    applied_hash: Name | None = None
    rejected: Rejection | None = None


class SaltKeyStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The salt key that the engine uses, and the error in its key file, if any."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,64}$")] = ""
    error: str = ""


class LoanReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One loan between two zones on an engine; the lender and the borrower are tenants' names."""

    lender: Name
    borrower: Name
    blocks: Blocks
    since_unix_time: UnixTime
    due_unix_time: UnixTime | None = None


class IdentityReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The identity declaration that the engine's frontend applies, and why it serves no tenant, if it serves none."""

    digest: Name
    problem: str = ""


class AdminPortStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Whether anybody may read the engine's admin port, and the error in its token file, if any."""

    open: bool = False
    error: str = ""


class ApiServerReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The config that one API server process of the engine enforces."""

    process: Count
    config_generation: Count | None = None
    config_hash: Name | None = None
    lags: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_LAGS)] = ()


class EngineReport(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An engine's report, reduced to the fields that the operator reads."""

    version: Literal[1]
    engine_version: Annotated[str, msgspec.Meta(max_length=253)]
    capacity_blocks: Blocks
    block_size_tokens: Blocks
    free_blocks: Blocks
    config: ConfigStatus
    published_unix_time: UnixTime
    pod: Name = ""
    seats: Count = 0
    salt_key: SaltKeyStatus | None = None
    identity: IdentityReport | None = None
    admin_port: AdminPortStatus | None = None
    api_servers: Annotated[tuple[ApiServerReport, ...], msgspec.Meta(max_length=MAX_API_SERVERS)] | None = None
    missing_api_servers: Count = 0
    pod_uid: Name = ""
    tiers: Annotated[tuple[TierReport, ...], msgspec.Meta(max_length=MAX_TIERS)] = ()
    zones: tuple[ZoneReport, ...] = ()
    loans: tuple[LoanReport, ...] = ()


_DECODER = msgspec.json.Decoder(EngineReport)


def max_report_bytes(declared: int, *, may_register: bool) -> int:
    """Returns the maximum size of an engine's report in bytes.

    Args:
        declared: the number of zones that name the pool.
        may_register: whether the engine registers zones for unknown tenants.
    """
    return _BASE_BYTES + _ZONE_BYTES * (declared + (_REGISTERED_ZONES if may_register else 0))


def read_report_text(text: bytes) -> EngineReport:
    """Parse the text of an engine's report.

    Raises:
        ValueError: the text is not a report, its version is unknown, or a number is out of bounds.
    """
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


async def read_report_text_aside(text: bytes) -> EngineReport:
    """Parse a report like `read_report_text`, but in a thread if it is long, so that it does not block the event loop.

    Raises:
        ValueError: see `read_report_text`.
    """
    if len(text) <= _IN_THREAD_BYTES:
        return read_report_text(text)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, read_report_text, text)
