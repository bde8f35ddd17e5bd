"""Converts the results of policies to JSON."""

from collections.abc import Sequence
from typing import Any

from tenantzone_replay.results.capacities import Curve
from tenantzone_replay.simulation.locality import Locality
from tenantzone_replay.simulation.measures import Result, TenantMeasures

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def as_json(results: Sequence[Result], locality: Locality, curves: Sequence[Curve] = ()) -> dict[str, Any]:
    """Returns the results as a JSON object. Times are in seconds. Rates and shares are fractions from 0 to 1."""
    return {
        "policies": [_policy(result) for result in results],
        "capacities": {
            curve.policy: [
                {"blocks": each.blocks, "hitRate": each.hit_rate, "attainment": each.attainment}
                for each in curve.points
            ]
            for curve in curves
        },
        "blocksOfTheLoad": {
            "sampled": locality.sampled,
            "usedOnce": locality.once,
            "reuseSeconds": {name: locality.reuse.quantile(part) for name, part in _QUANTILES.items()},
            "usesOfTheHottest": locality.concentration(),
        },
    }


def _policy(result: Result) -> dict[str, Any]:
    return {
        "policy": result.policy,
        "what": result.what,
        "blocks": result.blocks,
        "blockTokens": result.block_tokens,
        "hitRate": result.hit_rate,
        "attainment": result.attainment,
        "utilization": result.utilization,
        "seconds": result.seconds,
        "steps": result.steps,
        "tookSeconds": result.took_seconds,
        "tenants": {tenant: _tenant(each, result.seconds) for tenant, each in result.tenants.items()},
        "moments": [
            {
                "seconds": moment.seconds,
                "held": moment.held,
                "hitTokens": moment.hit_tokens,
                "promptTokens": moment.prompt_tokens,
                "waiting": moment.waiting,
                "running": moment.running,
                "lent": moment.lent,
            }
            for moment in result.moments
        ],
    }


def _tenant(each: TenantMeasures, seconds: float) -> dict[str, Any]:
    return {
        "requests": each.requests,
        "refused": each.refused,
        "cutShort": each.cut_short,
        "promptTokens": each.prompt_tokens,
        "hitTokens": each.hit_tokens,
        "outputTokens": each.output_tokens,
        "hitRate": each.hit_rate,
        "attainment": each.attainment,
        "firstTokenSeconds": {name: each.first_token.quantile(part) for name, part in _QUANTILES.items()},
        "tokenSeconds": {name: each.token.quantile(part) for name, part in _QUANTILES.items()},
        "firstTokenCurve": each.first_token.curve(),
        "evictedBlocks": dict(each.evicted),
        "preemptions": each.preemptions,
        "lentBlocks": each.lent,
        "borrowedBlocks": each.borrowed,
        "withheldTokens": each.withheld_tokens,
        "meanSeats": each.seat_seconds / seconds if seconds else 0.0,
        "meanBlocks": each.block_seconds / seconds if seconds else 0.0,
    }
