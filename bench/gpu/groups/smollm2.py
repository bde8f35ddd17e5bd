"""Measures SmolLM2 with real weights, as in the demo: equal answers, and the time to first token, cold and cached."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.gpu.answers import ask_each
from bench.gpu.compare import cold_and_cached
from bench.gpu.engines import EngineSpec
from bench.gpu.group import Context, Group, NotPossible, Phase
from bench.gpu.loads import ACME, zones
from bench.gpu.shapes import Shape
from bench.tiers.first_token import prompts_of
from hack.demo.models.model import MODELS, prepare
from hack.progress import CommandFailed

_MODEL: Final = "smollm2"


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    try:
        model = prepare(MODELS[_MODEL])
    except (CommandFailed, OSError) as error:
        raise NotPossible(f"the model {_MODEL} cannot be made here: {error}") from error
    return EngineSpec("stock", None, model=model, dummy=False), EngineSpec("zones", zones(), model=model, dummy=False)


async def _run(context: Context) -> Mapping[str, Any]:
    load = context.shape.load
    texts = prompts_of(len(context.seeds) * load.equal_answers, load.equal_prompt)
    rows = []
    for number, seed in enumerate(context.seeds):
        asked = texts[number * load.equal_answers : (number + 1) * load.equal_answers]
        cold, cached = {}, {}
        for name, engine in context.engines.items():
            context.say(f"seed {seed}: {name}")
            cold[name] = await ask_each(engine, ACME, asked, load.equal_answer)
            cached[name] = await ask_each(engine, ACME, asked, load.equal_answer)
            rows.append({"engine": name, "seed": seed, **cold_and_cached(name, cold, cached)})
    return {"model": {"name": _MODEL, "weights": "real"}, "rows": rows}


GROUP: Final = Group(_MODEL, _engines, (Phase(_MODEL, 180.0, _run),))
