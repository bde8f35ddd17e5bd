"""Measures a model with sliding-window and full-attention layers, like Gemma 3: equal answers, hits after a flood."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.gpu.answers import ask_each
from bench.gpu.compare import cached_share, cold_and_cached, first_token
from bench.gpu.engines import EngineSpec
from bench.gpu.group import Context, Group, Phase
from bench.gpu.groups.small_models import sizes
from bench.gpu.loads import ACME, BURST, fill_pool, prompts, zones
from bench.gpu.shapes import Shape
from bench.kinds.models import gemma3

_LAYER_GROUPS: Final = 6
"""Number of layer groups; each group needs its own blocks for the same tokens."""
_FLOODED_POOLS: Final = 3


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    model = folder / "gemma3"
    gemma3(model, **sizes(shape))
    flags = ("--num-gpu-blocks-override", str(_LAYER_GROUPS * shape.blocks))
    return (
        EngineSpec("stock", None, flags, model=model, dummy=False),
        EngineSpec("zones", zones(), flags, model=model, dummy=False),
    )


async def _run(context: Context) -> Mapping[str, Any]:
    load = context.shape.load
    rows = []
    for seed in context.seeds:
        asked = prompts(load.equal_prompt, f"hybrid {seed}", load.equal_answers)
        cold, cached, across, after = {}, {}, {}, {}
        for name, engine in context.engines.items():
            context.say(f"seed {seed}: {name}")
            cold[name] = await ask_each(engine, ACME, asked, load.equal_answer)
            cached[name] = await ask_each(engine, ACME, asked, load.equal_answer)
            across[name] = await ask_each(engine, BURST, asked, load.equal_answer)
            await fill_pool(context, engine, BURST, f"hybrid flood {seed}", _FLOODED_POOLS)
            after[name] = await ask_each(engine, ACME, asked, load.equal_answer)
        for name in context.engines:
            rows.append(
                {
                    "engine": name,
                    "seed": seed,
                    **cold_and_cached(name, cold, cached),
                    "cached, other tenant": cached_share(across[name]),
                    "cached after the flood": cached_share(after[name]),
                    "first token after the flood, s": first_token(after[name]),
                }
            )
    return {"rows": rows}


GROUP: Final = Group("hybrid", _engines, (Phase("hybrid", 180.0, _run),))
