"""The ways to serve two tenants from one engine that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.zone_terms import Idle

SEATS = 16
QUEUED = 24
"""Requests that may run or wait where stock vLLM bounds them; the bound is the same for all tenants."""

QUIET, FLOOD = "quiet", "flood"
"""The tenants, in the order in which engines give them keys."""

IDLE_SECONDS = 5.0
"""After this time without requests the quiet tenant's zone needs nothing, and its target no longer counts."""

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
    """One way."""

    name: str
    zones: tuple[ZoneConfig, ...] | None = None
    """None: stock vLLM."""
    flags: tuple[str, ...] = ()
    """vLLM's flags, in addition to those of all arms."""
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further fields of the bodies of requests, by tenant."""
    is_behind_kvwarden: bool = False
    target_seconds: float | None = None
    """The target for the time between two of the quiet tenant's tokens."""


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
"""The first one is the reference."""


def with_target(seconds: float, *, first_token: bool = False) -> Arm:
    """Returns an arm of zones whose quiet tenant has this target between tokens, or for the first token, too."""
    quiet, flood = _ZONES
    latency = {"token_time_seconds": seconds, "first_token_seconds": seconds if first_token else None}
    targeted = ZoneConfig.model_validate({**quiet.model_dump(), "latency": latency})
    return Arm(f"zones, {1000 * seconds:g} ms", zones=(targeted, flood), target_seconds=seconds)
