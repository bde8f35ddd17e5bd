"""Searches for the zones with the best trade-offs between memory and requests in time for a load, with Optuna.

Optuna: Akiba et al., *Optuna: A Next-generation Hyperparameter Optimization Framework*, KDD'19. Its multi-objective
TPE: Ozaki et al., *Multiobjective Tree-Structured Parzen Estimator*, JAIR 73, 2022.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from tenantzone_contract.zone_config.config import Watermarks, ZoneConfig
from tenantzone_contract.zone_config.share import Percent, percentage
from tenantzone_contract.zone_config.zone_terms import Lending, SeatShare
from tenantzone_replay.halving import halved
from tenantzone_replay.simulation.measures import Result
from tenantzone_replay.simulation.policies import STOCK, Policy, part_of, scaled, zone_names
from tenantzone_replay.simulation.setting import Setting
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES

SIZES: Final = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
"""Memory sizes to try, as fractions of the engine's blocks."""
_WEIGHTS: Final = (1, 2, 4)
_LIMITS: Final = (0.0, 1.5, 3.0)
"""Limits to try, as multiples of the reservation. 0 for no limit."""
_SEATS: Final = ("blocks", "alike")
"""Ways to reserve seats: in proportion to the reserved blocks, or the same number of seats for each zone."""
_MOST: Final = 8
"""Maximum number of parts for a tenant. A tenant's reservation is proportional to its number of parts."""
_NARROWED: Final = 3
"""Maximum number of candidates with unequal zones for which ``narrowed`` tries less memory."""
_KEPT: Final = 0.9
"""Minimum sum of the percentages after rounding down, as a fraction of their sum before rounding."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Zones that were tried with an amount of memory, and the result of the replay."""

    blocks: int
    zones: tuple[ZoneConfig, ...]
    lends: bool
    tier_blocks: int
    """Number of blocks in the CPU tier."""
    cost: float
    """Cost of the memory, in engine blocks. The cost of a tier block is ``tier_price`` engine blocks."""
    worst: float
    """Lowest of the tenants' fractions of requests in time."""
    result: Result
    is_equal: bool
    """Whether all zones are equal and have default settings, which is the obvious choice without advice."""


def search(
    setting: Setting,
    trials: int,
    seed: int,
    report: Callable[[Candidate], None],
    wanted: float,
    tiers: Sequence[float] = (0.0,),
    tier_price: float = 0.1,
) -> list[Candidate]:
    """Try equal zones with each memory size, then other zones. Returns all candidates.

    Args:
        setting: the load and the engine. The engine's blocks are the largest memory size to try.
        trials: the number of trials, in addition to the equal zones.
        seed: the random seed. Equal seeds give equal trials.
        report: called with each candidate.
        wanted: the fraction of each tenant's requests that must be in time.
        tiers: sizes of the CPU tier to try, as fractions of the engine's blocks, in any order.
        tier_price: the price of a tier block, in engine blocks.
    """
    # Imported here, because only `advise` needs Optuna.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tenants = list(setting.profile.demand)
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True)
    )
    tried: list[Candidate] = []
    tiers = tuple(sorted(set(tiers)))
    alike = [_equal(size, tenants, tier) for tier in tiers for size in SIZES]
    for start in alike:
        study.enqueue_trial(start)

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        candidate = _candidate(setting, tenants, trial, tiers, tier_price)
        tried.append(candidate)
        report(candidate)
        return candidate.cost, candidate.worst

    study.optimize(objective, n_trials=len(alike))
    # The first trials use the smallest sufficient memory size. The parts follow the tenants' use of the largest size.
    used = _by_use(tried[len(SIZES) - 1].result, tenants)
    _, least = min(zip(tried, alike, strict=True), key=lambda pair: _short_of(pair[0], wanted))
    for parts in used[:trials]:
        study.enqueue_trial(least | parts)
    study.optimize(objective, n_trials=trials)
    return tried


def narrowed(
    setting: Setting,
    tried: Sequence[Candidate],
    wanted: float,
    report: Callable[[Candidate], None],
    tier_price: float = 0.1,
) -> list[Candidate]:
    """Try less memory for candidates that reached the target. Returns the new candidates.

    Starts from the cheapest candidates with unequal zones, and for each tier size from the cheapest with equal zones.

    Args:
        setting: the setting of the search.
        tried: the candidates of the search.
        wanted: the fraction of each tenant's requests that must be in time.
        report: called with each new candidate.
        tier_price: the tier price of the search.
    """
    enough = sorted((each for each in tried if each.worst >= wanted), key=lambda each: (each.cost, -each.worst))
    best: dict[tuple[ZoneConfig, ...], Candidate] = {}
    equal: dict[float, Candidate] = {}
    """Cheapest candidate with equal zones, by the tier's size as a fraction of the engine's blocks."""
    for each in enough:
        if each.is_equal:
            equal.setdefault(round(each.tier_blocks / each.blocks, 1), each)
        else:
            best.setdefault(each.zones, each)
    starts = [*equal.values(), *list(best.values())[:_NARROWED]]
    smaller: list[Candidate] = []

    def reaches(start: Candidate, blocks: int) -> bool:
        part = blocks / start.blocks
        tier_blocks = part_of(start.tier_blocks, part)
        zones = tuple(scaled(zone, part) for zone in start.zones)
        found = _replayed(setting, blocks, zones, start.lends, tier_blocks, tier_price, start.is_equal)
        smaller.append(found)
        report(found)
        return found.worst >= wanted

    for start in starts:
        halved(0, start.blocks, partial(reaches, start))
    return smaller


def stock(setting: Setting, blocks: int) -> Result:
    """Replay the load with stock vLLM, with ``blocks`` blocks and no tier. Returns the result."""
    from tenantzone_replay.simulation.replay import replay

    return replay(replace(setting, shape=replace(setting.shape, blocks=blocks)), STOCK)


def present(setting: Setting, zones: Sequence[ZoneConfig], watermarks: Watermarks) -> Result:
    """Replay the load with a pool's current zones, all of the setting's blocks and no tier. Returns the result.

    Args:
        setting: the load and the engine.
        zones: the pool's current zones.
        watermarks: the pool's watermarks.
    """
    from tenantzone_replay.simulation.replay import replay

    return replay(setting, Policy("present", "the pool's present zones", zones=tuple(zones), watermarks=watermarks))


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Returns the candidates for which no other candidate is both cheaper and at least as good, cheapest first."""
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: (each.cost, -each.worst)):
        if not front or candidate.worst > front[-1].worst:
            front.append(candidate)
    return front


def shares_of(reserved: float, parts: Sequence[int], base: int) -> Sequence[int | Percent]:
    """Returns each zone's reservation as a whole percentage, or as an absolute number if percentages are too coarse.

    Percentages are preferred, because they also apply to engines of other sizes. They are too coarse if a zone's
    percentage would be 0, or if rounding would lose more than a tenth of the reservations.

    Args:
        reserved: the sum of all reservations, as a fraction of the base.
        parts: the zones' shares of this sum, relative to each other.
        base: the total number of blocks or seats.
    """
    exact = [reserved * part / (sum(parts) or 1) for part in parts]
    # Add a little, because a product of floats may be slightly below the exact integer.
    percents = [int(100 * each + 1e-9) for each in exact]
    coarse = sum(percents) < 100 * _KEPT * sum(exact) or any(
        part and not percent for part, percent in zip(parts, percents, strict=True)
    )
    return [int(base * each + 1e-9) for each in exact] if coarse else [f"{each}%" for each in percents]


def _limit(times: float, share: int | Percent, blocks: int) -> int | Percent | None:
    """Returns a limit of ``times`` times the reservation, or None for no limit."""
    if isinstance(share, int):
        return min(blocks, int(times * share)) or None
    percent = min(100, int(times * percentage(share)))
    return f"{percent}%" if percent else None


def _equal(size: float, tenants: list[str], tier: float) -> dict[str, Any]:
    alike = {f"{what} {number}": 1 for number in range(len(tenants)) for what in ("part", "weight")}
    whole = {"size": size, "reserved": 1.0, "lends": True, "limit": 0.0, "seats": "blocks", "policy": "LRU"}
    return whole | {"tier": tier} | alike


def _by_use(result: Result, tenants: Sequence[str]) -> list[dict[str, int]]:
    """Returns sets of parts to try first: one proportional to held blocks times hit rate, one to held blocks alone."""
    held = [result.tenants[tenant].block_seconds for tenant in tenants]
    again = [blocks * result.tenants[tenant].hit_rate for blocks, tenant in zip(held, tenants, strict=True)]
    return [
        {f"part {number}": round(_MOST * part / max(parts)) for number, part in enumerate(parts)}
        for parts in (again, held)
        if max(parts)
    ]


def _short_of(each: Candidate, wanted: float) -> tuple[float, float]:
    """Returns how far a candidate's worst tenant is below the target, and the candidate's cost."""
    return max(0.0, wanted - each.worst), each.cost


def _candidate(
    setting: Setting, tenants: list[str], trial: Any, tiers: Sequence[float], tier_price: float
) -> Candidate:
    blocks = int(setting.shape.blocks * trial.suggest_categorical("size", SIZES))
    reserved = trial.suggest_float("reserved", 0.2, 1.0, step=0.2)
    lends = trial.suggest_categorical("lends", [True, False])
    limit = trial.suggest_categorical("limit", _LIMITS)
    seats = trial.suggest_categorical("seats", _SEATS)
    policy = trial.suggest_categorical("policy", tuple(EVICTION_POLICIES))
    tier_blocks = part_of(blocks, trial.suggest_categorical("tier", tiers))
    parts = [trial.suggest_int(f"part {number}", 0, _MOST) for number in range(len(tenants))]
    weights = [trial.suggest_categorical(f"weight {number}", _WEIGHTS) for number in range(len(tenants))]
    seat_shares = shares_of(1.0, [1] * len(tenants), setting.shape.seats) if seats == "alike" else [None] * len(tenants)
    zones = tuple(
        ZoneConfig(
            name=name,
            tenant=tenant,
            generation=1,
            reserved=share,
            limit=_limit(limit, share, blocks),
            weight=weight,
            eviction_policy=policy,
            seats=SeatShare(reserved=seat_share),
            lending=Lending() if lends else Lending(lendable=0),
        )
        for name, tenant, share, weight, seat_share in zip(
            zone_names(tenants), tenants, shares_of(reserved, parts, blocks), weights, seat_shares, strict=True
        )
    )
    is_plain = lends and not limit and seats == "blocks" and policy == "LRU"
    is_equal = len(set(parts)) == len(set(weights)) == 1 and is_plain
    return _replayed(setting, blocks, zones, lends, tier_blocks, tier_price, is_equal)


def _replayed(
    setting: Setting,
    blocks: int,
    zones: tuple[ZoneConfig, ...],
    lends: bool,
    tier_blocks: int,
    tier_price: float,
    is_equal: bool,
) -> Candidate:
    # Imported here, because it imports vLLM, which --help does not need.
    from tenantzone_replay.simulation.replay import replay

    at = replace(setting, shape=replace(setting.shape, blocks=blocks))
    result = replay(at, Policy("advised", "zones that are tried", zones=zones, tier_blocks=tier_blocks))
    cost = blocks + tier_price * tier_blocks
    return Candidate(blocks, zones, lends, tier_blocks, cost, result.worst, result, is_equal)
