"""Measures two tenants with a LoRA adapter each: time to first token, and tokens per second."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.gpu.answers import ask
from bench.gpu.compare import first_token, same
from bench.gpu.engines import EngineSpec
from bench.gpu.group import Context, Group, Phase
from bench.gpu.groups.lora import RANK, make_adapter
from bench.gpu.loads import TENANTS, caller, generated_per_second, prompts, throughput, zones
from bench.gpu.shapes import Shape

_AT_ONCE: Final = 32
_ADAPTERS: Final = {tenant: f"{tenant}-adapter" for tenant in TENANTS}


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    for seed, name in enumerate(_ADAPTERS.values()):
        make_adapter(folder / name, shape.config, seed=seed)
    flags = (
        "--enable-lora", "--max-loras", str(len(_ADAPTERS)), "--max-lora-rank", str(RANK),
        "--lora-modules", *(json.dumps({"name": name, "path": str(folder / name)}) for name in _ADAPTERS.values()),
    )  # fmt: skip
    declared = tuple(zone.model_copy(update={"adapters": (_ADAPTERS[zone.tenant],)}) for zone in zones())
    return EngineSpec("stock", None, flags), EngineSpec("zones", declared, flags)


async def _run(context: Context) -> Mapping[str, Any]:
    load = context.shape.load
    rows = []
    for seed in context.seeds:
        asked = prompts(load.equal_prompt, f"adapters {seed}", load.equal_answers)
        answers = {}
        for name, engine in context.engines.items():
            context.say(f"seed {seed}: {name}")
            for tenant, adapter in _ADAPTERS.items():
                answers[name, tenant] = [
                    await ask(engine, tenant, prompt, load.equal_answer, model=adapter) for prompt in asked
                ]
            callers = [caller(engine, tenant, model=adapter) for tenant, adapter in _ADAPTERS.items()]
            loaded = await throughput(context, engine, callers, _AT_ONCE, f"adapters {seed}")
            rows.append(
                {
                    "engine": name,
                    "seed": seed,
                    "answers": len(TENANTS) * len(asked),
                    "same as stock": sum(same(answers[name, each], answers["stock", each]) for each in TENANTS),
                    "first token, s": first_token([each for tenant in TENANTS for each in answers[name, tenant]]),
                    f"tokens/s at {_AT_ONCE}": generated_per_second(loaded),
                }
            )
    return {"rows": rows}


GROUP: Final = Group("adapters", _engines, (Phase("adapters", 120.0, _run),))
