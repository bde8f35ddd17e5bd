"""Searches the zones that serve a load best: memory against what is in time, by Optuna.

(Akiba et al., *Optuna: A Next-generation Hyperparameter Optimization Framework*, KDD'19; its multi-objective TPE: Ozaki
et al., *Multiobjective Tree-Structured Parzen Estimator*, JAIR 73, 2022.)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.zone_terms import Lending
from tenantzone_replay.measures import Result
from tenantzone_replay.policies import Policy, zone_name
from tenantzone_replay.replay import replay
from tenantzone_replay.setting import Setting

SIZES: Final = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
"""Parts of the engine's blocks that are tried as its memory."""
_WEIGHTS: Final = (1, 2, 4)
_MOST: Final = 8
"""Parts of what is reserved that a tenant may be given; in all they come to one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Zones that were tried, and what came of them."""

    blocks: int
    zones: tuple[ZoneConfig, ...]
    lends: bool
    worst: float
    """The part of its requests that the tenant which fared worst had in time."""
    result: Result
    is_equal: bool
    """Whether all zones are alike, as somebody sets them who has no figures."""


def search(setting: Setting, trials: int, seed: int, told: Callable[[Candidate], None]) -> list[Candidate]:
    """Try zones, those first that all reserve alike, and return all that were tried.

    Args:
        setting: its blocks are the most that are tried.
        trials: how many, besides those first ones.
        seed: the same one gives the same trials.
        told: called with each.
    """
    # Only who asks for advice needs it.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tenants = list(setting.profile.demand)
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True)
    )
    tried: list[Candidate] = []
    for size in SIZES:
        study.enqueue_trial(_equal(size, tenants))

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        candidate = _candidate(setting, tenants, trial)
        tried.append(candidate)
        told(candidate)
        return candidate.blocks, candidate.worst

    study.optimize(objective, n_trials=len(SIZES) + trials)
    return tried


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those of which none has more in time with as little memory, or as much with less; the smallest first."""
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: (each.blocks, -each.worst)):
        if not front or candidate.worst > front[-1].worst:
            front.append(candidate)
    return front


def _equal(size: float, tenants: list[str]) -> dict[str, Any]:
    alike = {f"{what} {number}": 1 for number in range(len(tenants)) for what in ("part", "weight")}
    return {"size": size, "reserved": 1.0, "lends": True} | alike


def _candidate(setting: Setting, tenants: list[str], trial: Any) -> Candidate:
    blocks = int(setting.shape.blocks * trial.suggest_categorical("size", SIZES))
    reserved = trial.suggest_float("reserved", 0.2, 1.0, step=0.2) * blocks
    lends = trial.suggest_categorical("lends", [True, False])
    parts = [trial.suggest_int(f"part {number}", 0, _MOST) for number in range(len(tenants))]
    weights = [trial.suggest_categorical(f"weight {number}", _WEIGHTS) for number in range(len(tenants))]
    whole = sum(parts) or 1
    zones = tuple(
        ZoneConfig(
            name=zone_name(tenant, number),
            tenant=tenant,
            generation=1,
            # A whole percentage, since that is what the advice says.
            reserved=f"{int(100 * reserved * parts[number] / whole / blocks)}%",
            weight=weights[number],
            lending=Lending() if lends else Lending(lendable=0),
        )
        for number, tenant in enumerate(tenants)
    )
    at = replace(setting, shape=replace(setting.shape, blocks=blocks))
    result = replay(at, Policy("advised", "zones that are tried", zones=zones))
    worst = min(each.attainment for each in result.tenants.values())
    is_equal = len(set(parts)) == len(set(weights)) == 1 and lends
    return Candidate(blocks, zones, lends, worst, result, is_equal)
