"""Random zone configs that use every field of the contract, and that fit on the engine for which they are drawn."""

import random
from dataclasses import dataclass

from tenantzone_contract.zone_config.config import EvictionPolicy, PoolConfig, RuntimeConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle, Lending, Release
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES

CLASSES = ("large reservation", "small reservation", "no reservation", "not declared")


_RELEASE = Release(share="25%", every_seconds=10)


@dataclass(frozen=True, slots=True)
class Population:
    """The class of each tenant, which is fixed for a run; configs draw everything else."""

    class_of: dict[str, str]

    @property
    def sleepers(self) -> list[str]:
        """The first zones with a large reservation, which claim all their lent blocks back at once."""
        return [tenant for tenant, name in self.class_of.items() if name == "large reservation"][:3]

    @property
    def golden(self) -> tuple[str, ...]:
        """Two undeclared tenants of a level that reserves blocks."""
        return tuple(tenant for tenant, name in self.class_of.items() if name == "not declared")[:2]

    def declared(self) -> list[str]:
        return [tenant for tenant, name in self.class_of.items() if name != "not declared"]


def draw_population(seed: int, tenants: list[str]) -> Population:
    """Returns a random class for each tenant, independent of the tenant's size."""
    rng = random.Random(f"population {seed}")
    return Population({tenant: rng.choices(CLASSES, (2, 4, 6, 1))[0] for tenant in tenants})


class ConfigDraw:
    """Draws random configs.

    Args:
        seed: equal seeds give the same sequence of configs.
        population: the tenants with their classes.
        capacity: the number of blocks of the engine.
        largest_request: a number of blocks. Most configs leave this many unreserved, so that each request can be served
            eventually. Some leave none, so that requests may need blocks that are never lent.
        lending: whether zones lend unused reservations.
        eviction_policy: the policy of all zones; if None, each zone draws its own. Other fields are drawn the same way.
    """

    def __init__(
        self,
        seed: int,
        population: Population,
        *,
        capacity: int,
        largest_request: int,
        lending: bool,
        eviction_policy: EvictionPolicy | None,
    ) -> None:
        self._random = random.Random(f"configs {seed}")
        self._population = population
        self._capacity = capacity
        self._largest_request = largest_request
        self._lending = lending
        self._eviction_policy_of_all = eviction_policy
        self._generation = 0

    def next(self, *, unknown_tenants: bool = True) -> RuntimeConfig:
        """Returns the next config, in which unknown tenants are registered or refused."""
        self._generation += 1
        rng = self._random
        # Except in the first config, a tenth of the zones is missing, so that zones are removed and added again.
        declared = self._population.declared()
        if self._generation > 1:
            declared = [tenant for tenant in declared if rng.random() < 0.9]
        reserved = self._reservations(declared)
        zones = tuple(self._zone(tenant, reserved[tenant]) for tenant in declared)
        idle = Idle(after_seconds=5, forget_after_seconds=200, release=rng.choice([None, _RELEASE]))
        template = UnknownTenantTemplate(limit="75%", priority=rng.randint(-1, 1), idle=idle)
        mode = "AutoRegister" if unknown_tenants else "Reject"
        pool = PoolConfig(
            namespace="simulator",
            name="pool",
            unknown_tenants=UnknownTenants(mode=mode, template=template, levels=self._levels()),
            watermarks=rng.choice([Watermarks(), Watermarks(low=0.02, high=0.05)]),
        )
        return make_config(self._generation, pool, zones)

    def overcommitted(self, config: RuntimeConfig) -> RuntimeConfig:
        """Returns the config with a zone added that reserves the whole pool, so that the engine is too small."""
        self._generation += 1
        huge = ZoneConfig(name="huge", tenant="huge", generation=1, reserved="100%")
        return make_config(self._generation, config.pool, (*config.zones, huge))

    def _levels(self) -> tuple[TenantLevel, ...]:
        golden = self._population.golden
        if not golden:
            return ()
        return (TenantLevel(name="gold", tenants=golden, reserved=self._golden_blocks, weight=2, priority=1),)

    @property
    def _golden_blocks(self) -> int:
        return self._capacity // 50

    def _reservations(self, declared: list[str]) -> dict[str, int]:
        rng = self._random
        weight_of = {"large reservation": 8.0, "small reservation": rng.choice([0.0, 1.0]), "no reservation": 0.0}
        weights = {tenant: weight_of[self._population.class_of[tenant]] * rng.uniform(0.5, 1.5) for tenant in declared}
        sleepers = [tenant for tenant in self._population.sleepers if tenant in weights]
        for tenant in sleepers:
            # Give sleepers together the same weight as all other zones.
            weights[tenant] = sum(weights[other] for other in declared if other not in sleepers) / len(sleepers)
        spared = rng.choice([0, self._largest_request, self._largest_request, self._largest_request])
        golden = self._golden_blocks * len(self._population.golden)
        total = rng.uniform(0.7, 1.0) * max(0, self._capacity - spared - golden)
        whole = sum(weights.values()) or 1.0
        return {tenant: int(total * weight / whole) for tenant, weight in weights.items()}

    def _zone(self, tenant: str, reserved: int) -> ZoneConfig:
        rng = self._random
        limit = rng.choice([None, None, "90%", max(reserved, rng.randint(self._largest_request // 2, self._capacity))])
        if limit == "90%" and reserved > self._capacity * 9 // 10:
            limit = None
        lending = Lending(
            lendable=rng.choice(["100%", "100%", "50%", reserved // 3, "0%"]),
            borrowers=rng.choice(["SameOrHigherPriority", "SameOrHigherPriority", "AnyPriority"]),
            max_loan_seconds=rng.choice([None] * 18 + [20, 90]),
            grace_seconds=rng.choice([0, 5, 30]),
        )
        if tenant in self._population.sleepers:
            lending = Lending(lendable="100%", borrowers="AnyPriority")
        return ZoneConfig(
            name=tenant,
            tenant=tenant,
            generation=self._generation,
            priority=rng.choice([-1, 0, 0, 1, 2]),
            reserved=reserved,
            limit=limit,
            weight=rng.choice([1, 1, 1, 2, 4]),
            lending=lending if self._lending else Lending(lendable=0),
            idle=Idle(
                after_seconds=rng.choice([0.5, 2, 10, 30]),
                evict_after_seconds=rng.choice([None, None, 60]),
                release=rng.choice([None, None, _RELEASE]),
            ),
            eviction_policy=self._eviction_policy(),
        )

    def _eviction_policy(self) -> EvictionPolicy:
        drawn = self._random.choice(list(EVICTION_POLICIES))
        return self._eviction_policy_of_all or drawn
