"""Defines the policies that the replay compares. They model stock vLLM, other projects and TenantZone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_contract.zone_config.zone_terms import Lending
from tenantzone_runtime.engine.modelless.engine_shape import EvictionOrder

NO_WATERMARKS: Final = Watermarks()
"""Watermarks with which blocks are evicted only on demand."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to serve a load."""

    name: str
    what: str
    zones: tuple[ZoneConfig, ...] | None = None
    """The zones, or None for vLLM's stock scheduler."""
    salted: bool = True
    """Whether each tenant has a separate ``cache_salt``. With zones, tenants never share prefixes."""
    bucket: Mapping[str, float] | None = None
    """Maximum number of tokens per second that the frontend accepts, by tenant. None for no limit."""
    quotas: Mapping[str, int] | None = None
    """Soft quotas in blocks, by tenant. Cached blocks above a quota are evicted every second. None for no quotas."""
    priorities: Mapping[str, int] | None = None
    """vLLM's priority, by tenant. Smaller values are served first. None for first come, first served."""
    order: EvictionOrder = "lru"
    """Order in which stock vLLM evicts cached blocks."""
    tier_blocks: int = 0
    """Number of blocks in the CPU tier, or 0 for no tier."""
    watermarks: Watermarks = NO_WATERMARKS
    """The watermarks of the zones' pool."""
    infinite: bool = False
    """Whether the cache is unlimited, so that no blocks are evicted."""

    def config(self) -> RuntimeConfig | None:
        if self.zones is None:
            return None
        return make_config(1, PoolConfig(namespace="replay", name="pool", watermarks=self.watermarks), self.zones)


BUCKET_SECONDS: Final = 60.0
"""Depth of a token bucket, in seconds of its rate. After this time without requests, the bucket is full."""
QUOTA_SECONDS: Final = 1.0
"""Interval in seconds at which soft quotas are enforced, as in LMCache."""


STOCK: Final = Policy("stock", "vLLM, LRU, prefixes shared by all", salted=False)


def policies(
    zones: Sequence[ZoneConfig],
    blocks: int,
    tokens_per_second: float,
    demand: Mapping[str, int] | None = None,
    tier_blocks: int = 0,
    watermarks: Watermarks = NO_WATERMARKS,
) -> dict[str, Policy]:
    """Returns all policies by name, in the order of a table.

    Args:
        zones: the zones, one for each tenant. Policies without zones derive the tenants' shares from them.
        blocks: the number of blocks of the engine.
        tokens_per_second: the engine's prefill speed, which the token buckets divide among the tenants.
        demand: the number of tokens of each tenant. Determines the priorities if those of the zones are equal.
        tier_blocks: the number of blocks in the CPU tier.
        watermarks: the pool's watermarks, for the policies with zones.
    """
    priorities = _priorities(zones, demand or {})
    parts = _shares(zones, blocks)
    bucket = {tenant: share / max(1, blocks) * tokens_per_second for tenant, share in parts.items()}
    shares = {tenant: int(share) for tenant, share in parts.items()}
    alone = Lending(lendable=0)
    fenced = [
        changed(zone, reserved=shares[zone.tenant], limit=shares[zone.tenant] or None, lending=alone) for zone in zones
    ]
    unlent = tuple(changed(zone, lending=alone) for zone in zones)
    ours = Policy("zones", "ours", zones=tuple(zones), watermarks=watermarks)
    every = [
        STOCK,
        Policy("salted", "vLLM, LRU, a cache_salt per tenant"),
        Policy("priority", "salted; who has priority is served first", priorities=priorities),
        Policy("random-lru", "salted; of five cached blocks by chance the oldest goes", order="random-lru"),
        Policy(
            "radix-priority",
            "as SGLang: who has priority is served first and evicted last",
            priorities=priorities,
            order="priority",
        ),
        Policy("partition", "each tenant its share of the blocks and no more", zones=tuple(fenced)),
        Policy("bucket", "vLLM with salts behind a token bucket per tenant", bucket=bucket),
        Policy("soft-quota", "vLLM with salts; what is above a share goes once a second", quotas=shares),
        replace(ours, name="zones-no-lending", what="ours, nothing lent", zones=unlent),
        ours,
        replace(ours, name="zones-tier", what="ours, over a tier of CPU memory", tier_blocks=tier_blocks),
        Policy("infinite", "vLLM with salts, nothing ever evicted", infinite=True),
    ]
    return {policy.name: policy for policy in every}


def equal_zones(tenants: Sequence[str], blocks: int) -> tuple[ZoneConfig, ...]:
    """Returns a zone for each tenant. The zones reserve equal shares of all blocks."""
    return tuple(
        ZoneConfig(name=name, tenant=tenant, generation=1, reserved=blocks // len(tenants))
        for name, tenant in zip(zone_names(tenants), tenants, strict=True)
    )


def zone_names(tenants: Sequence[str]) -> list[str]:
    """Returns a name for each tenant's zone. The names are unique and valid in Kubernetes.

    If the name of a tenant is valid, its zone has the same name. Other names are made valid and numbered.
    """
    plain = [_plain(tenant) for tenant in tenants]
    taken = {name for name, tenant in zip(plain, tenants, strict=True) if name == tenant}
    names = []
    for number, (name, tenant) in enumerate(zip(plain, tenants, strict=True)):
        if name != tenant:
            name = next(free for at in count(number) if (free := f"{name}-{at}") not in taken)
            taken.add(name)
        names.append(name)
    return names


def _plain(tenant: str) -> str:
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in tenant.lower())
    return plain[:50].strip("-") or "zone"


def changed(zone: ZoneConfig, **changes: object) -> ZoneConfig:
    """Returns a copy of a zone with changed fields, and validates the copy."""
    fields = {name: getattr(zone, name) for name in type(zone).model_fields}
    return ZoneConfig(**(fields | changes))


def _priorities(zones: Sequence[ZoneConfig], demand: Mapping[str, int]) -> dict[str, int]:
    """Returns vLLM priorities by tenant, from the zones' priorities.

    If all zones have the same priority, tenants with less demand are served first.
    """
    if len({zone.priority for zone in zones}) > 1:
        return {zone.tenant: -zone.priority for zone in zones}
    by_demand = sorted(zones, key=lambda zone: (demand.get(zone.tenant, 0), zone.tenant))
    return {zone.tenant: place for place, zone in enumerate(by_demand)}


def _shares(zones: Sequence[ZoneConfig], blocks: int) -> dict[str, float]:
    """Returns each zone's reservation plus an equal share of the unreserved blocks. Results may be fractional."""
    reserved = {zone.tenant: floor_blocks(zone.reserved, blocks) for zone in zones}
    left = max(0, blocks - sum(reserved.values())) / max(1, len(zones))
    return {tenant: share + left for tenant, share in reserved.items()}


NAMES: Final = tuple(policies([], 0, 0.0))
"""The names of all policies, in the order of a table."""


def part_of(blocks: int, part: float) -> int:
    """Returns a fraction of the blocks, rounded down. A product just below an integer counts as the integer."""
    return int(blocks * part + 1e-9)


def scaled(zone: ZoneConfig, part: float) -> ZoneConfig:
    """Returns a copy of a zone with its numbers of blocks multiplied by ``part``. Percentages stay the same."""
    amounts = {
        name: part_of(amount, part) for name in ("reserved", "limit") if isinstance(amount := getattr(zone, name), int)
    }
    if amounts.get("limit") == 0:
        amounts["limit"] = 1
    lending = zone.lending
    if isinstance(lending.lendable, int):
        lending = lending.model_copy(update={"lendable": part_of(lending.lendable, part)})
    return changed(zone, lending=lending, **amounts)
