"""The arms of the bench: the compared ways to serve two tenants from one engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle

SEATS = 16
QUEUED = 24
"""Maximum number of running and waiting requests in the arm with a bounded queue, over all tenants."""

QUIET, FLOOD = "quiet", "flood"
"""Names of the tenants, in the order in which engines give them keys."""

IDLE_SECONDS = 5.0
"""Time without requests after which the quiet tenant's zone is idle, so that its target no longer counts."""

_ZONES = (
    ZoneConfig(
        name=QUIET,
        tenant=QUIET,
        generation=1,
        reserved="50%",
        weight=100,
        priority=10,
        idle=Idle(after_seconds=IDLE_SECONDS),
    ),
    ZoneConfig(name=FLOOD, tenant=FLOOD, generation=1),
)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve both tenants from one engine."""

    name: str
    zones: tuple[ZoneConfig, ...] | None = None
    """Zones of the engine; None for stock vLLM."""
    flags: tuple[str, ...] = ()
    """vLLM flags in addition to the flags of all arms."""
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Additional body fields of requests, by tenant."""
    is_behind_kvwarden: bool = False
    target_seconds: float | None = None
    """Target for the time between two tokens of the quiet tenant."""


ARMS = (
    Arm("stock"),
    Arm(
        "stock, bounded queue",
        flags=("--max-num-queued-reqs", str(QUEUED)),
        fields={tenant: {"cache_salt": tenant} for tenant in (QUIET, FLOOD)},
    ),
    Arm(
        "stock, by priority",
        flags=("--scheduling-policy", "priority"),
        fields={QUIET: {"priority": 0}, FLOOD: {"priority": 10}},
    ),
    Arm("KVWarden", is_behind_kvwarden=True),
    Arm("zones", zones=_ZONES),
)
"""All arms; the first one is the reference."""


def with_target(seconds: float, *, first_token: bool = False) -> Arm:
    """Returns an arm with zones whose quiet tenant has this target between tokens, and optionally for first tokens."""
    quiet, flood = _ZONES
    latency = {"token_time_seconds": seconds, "first_token_seconds": seconds if first_token else None}
    targeted = ZoneConfig.model_validate({**quiet.model_dump(), "latency": latency})
    return Arm(f"zones, {1000 * seconds:g} ms", zones=(targeted, flood), target_seconds=seconds)
