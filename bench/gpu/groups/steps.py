"""Measures step times of both engines, the error of the zones' predictions, and the scheduler's share of a step."""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.gpu.engines import Engine, EngineSpec
from bench.gpu.group import Context, Group, Phase
from bench.gpu.groups.metrics import OPEN_METRICS, total, vllm_metrics
from bench.gpu.load import Loaded
from bench.gpu.loads import ACME, BURST, caller, checked, distinct, zones
from bench.gpu.plan import Plan, Stream, poisson
from bench.gpu.shapes import Shape
from bench.processes import importing_alike
from tenantzone_contract.zone_config.zone_terms import LatencyTargets

_PREDICTIONS: Final = ("predicted_steps", "step_seconds", "predicted_step_seconds", "step_prediction_error_seconds")
"""Names of a zones engine's counters, which count only steps whose time was predicted."""


class StepTimeError(Exception):
    """The process that times the schedulers failed; the message has its last line of output."""


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    acme, burst = zones()
    target = LatencyTargets(token_time_seconds=shape.load.target_seconds)
    declared = (acme.model_copy(update={"latency": target}), burst)
    return EngineSpec("stock", None), EngineSpec("zones", declared, variables=OPEN_METRICS)


async def _run(context: Context) -> Mapping[str, Any]:
    rows = []
    for seed in context.seeds:
        for name, engine in context.engines.items():
            context.say(f"seed {seed}: {name}")
            steps_before, predicted_before = await _steps(engine), await _predicted(engine)
            began = time.monotonic()
            loaded = await _mixed_load(context, engine, seed)
            passed = time.monotonic() - began
            steps = await _steps(engine) - steps_before
            predicted = [now - before for now, before in zip(await _predicted(engine), predicted_before, strict=True)]
            rows.append(
                {
                    "engine": name,
                    "seed": seed,
                    "steps": int(steps),
                    "time per step, s": passed / steps,
                    "acme, median token, s": statistics.median(loaded.streams[ACME].token_seconds),
                    "target, s": context.shape.load.target_seconds if engine.has_zones else None,
                    **_prediction_columns(*predicted),
                }
            )
    return {"rows": rows}


async def _scheduler(context: Context) -> Mapping[str, Any]:
    """Time the scheduler's part of a step without a model, in a separate process.

    Raises:
        StepTimeError: the process failed.
    """
    file = context.folder / "step_time.json"
    steps = context.shape.load.scheduler_steps
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.scheduler.step_time", "--loads", "no-queue", "--json", file,
        "--steps", str(steps), "--warm-up", str(steps // 5),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=importing_alike(), start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    line = ""
    try:
        async for said in process.stderr:
            line = said.decode(errors="replace").strip()
            context.say(line)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        raise StepTimeError(f"bench.scheduler.step_time ended with code {code}: {line}")
    return {"rows": json.loads(file.read_text())}


async def _mixed_load(context: Context, engine: Engine, seed: int) -> Loaded:
    """Send acme's requests at random times while burst floods the engine."""
    load = context.shape.load
    end = load.warm_seconds + load.window_seconds
    arrivals = poisson(load.tenant_rate, load.warm_seconds, end, f"steps {seed}")
    acme = Stream(
        ACME,
        engine.url,
        (caller(engine, ACME),),
        distinct(load.prefix + load.own, f"steps acme {seed}"),
        load.answer,
        # Send at least one request, because a short window may have no random arrival.
        arrivals=arrivals or (load.warm_seconds,),
    )
    burst = Stream(
        BURST,
        engine.url,
        (caller(engine, BURST),),
        distinct(load.flood_prompt, f"steps burst {seed}"),
        load.flood_answer,
        at_once=load.flood_at_once,
        stagger=True,
    )
    return checked(await context.workers.run(Plan((acme, burst), (load.warm_seconds, end))))


async def _steps(engine: Engine) -> float:
    """Returns the number of steps that the engine has run so far."""
    return total(await vllm_metrics(engine), "vllm:iteration_tokens_total_count")


async def _predicted(engine: Engine) -> list[float]:
    """Returns the values of the counters in `_PREDICTIONS`; zeros on stock vLLM."""
    shown = await engine.metrics() if engine.has_zones else ""
    return [total(shown, f"tenantzone_engine_{name}_total") for name in _PREDICTIONS]


def _prediction_columns(steps: float, actual: float, predicted: float, error: float) -> dict[str, float | None]:
    """Returns columns for a row: the mean step time and prediction, and the absolute error relative to the time."""
    return {
        "predicted steps": int(steps) if steps else None,
        "mean predicted step, s": actual / steps if steps else None,
        "mean prediction, s": predicted / steps if steps else None,
        "prediction error": error / actual if actual else None,
    }


GROUP: Final = Group("steps", _engines, (Phase("steps", 120.0, _run), Phase("scheduler", 180.0, _scheduler)))
