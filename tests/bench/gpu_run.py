"""Runs of the GPU bench for tests of its report."""

import json
from pathlib import Path

from bench.gpu.report.measures import judged

FIRST = Path(__file__).parents[2] / "bench" / "gpu" / "results" / "2026-11-27-h100.json"


def raw(*seconds):
    return {
        "requests": len(seconds),
        "failed": 0,
        "first_token_seconds": list(seconds),
        "token_seconds": [each / 10 for each in seconds],
    }


def arm(name, seed, *, flood=None, target=None, conditions=None, **tenants):
    rates = None if flood is None else {"tokens_per_second": flood, "requests_per_second": 1.0}
    return {
        "arm": name,
        "seed": seed,
        "window_seconds": 1.0,
        "tenants": tenants,
        "flood": rates,
        "target_seconds": target,
        "conditions": conditions or {},
    }


def phase(name, results, *, group="default", status="done", why=""):
    return {
        "group": group,
        "name": name,
        "status": status,
        "why": why,
        "seconds": 1.0,
        "limit_seconds": 2.0,
        "results": results,
    }


def cell(engine, tenants, seed, rate):
    return {
        "engine": engine,
        "tenants": tenants,
        "concurrency": 256,
        "seed": seed,
        "tokens_per_second": rate,
        "window_seconds": 1.0,
        "failed": 0,
        "client_cpu_share": 0.1 * seed,
    }


def two_seeds():
    """A run with two seeds, in the environment of the first results."""
    arms = [
        arm("solo, zones", 1, plain=raw(1.0, 2.0), target=None),
        arm("solo, zones", 2, plain=raw(3.0), target=None),
        arm("stock", 1, flood=90.0, plain=raw(50.0)),
        arm("stock", 2, flood=110.0, plain=raw(60.0)),
        arm("zones", 1, flood=70.0, plain=raw(4.0, 5.0)),
        arm("zones", 2, flood=90.0, plain=raw(6.0)),
    ]
    with_targets = arm("zones with targets", 1, flood=60.0, target=0.04, conditions={"t1": "TooSlow"}, plain=raw(9.0))
    with_targets["tenants"]["target"] = raw(2.0, 3.0)
    return {
        **json.loads(FIRST.read_text()),
        "phases": [
            phase("noisy", {"arms": [*arms, with_targets]}),
            phase(
                "throughput", {"rows": [cell("stock", 1, 1, 100), cell("stock", 1, 2, 200), cell("zones", 1, 1, 147)]}
            ),
            phase("tier", {"rows": [{"state": "cold", "ms": 1.5}, {"state": "hit", "bytes": 2048}]}, group="tier"),
            phase("reclaim", {}, status="timed out", why="slow\nengine"),
        ],
    }


def phase_of(run, name):
    return next(each for each in run["phases"] if each["name"] == name)


def outcomes(run):
    return {measure.goal.partition(":")[0]: measure.outcome for measure in judged(run)}
