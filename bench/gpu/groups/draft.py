"""Speculative decoding with a draft model: equal answers, accepted drafts, and tokens per second.

The model is its own draft model, because a model with random weights can't predict another model. So nearly all drafts
are accepted.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.gpu.answers import ask_each
from bench.gpu.compare import same
from bench.gpu.engines import Engine, EngineSpec
from bench.gpu.group import Context, Group, Phase
from bench.gpu.groups.metrics import OPEN_METRICS, total, vllm_metrics
from bench.gpu.groups.small_models import sizes
from bench.gpu.loads import ACME, TENANTS, caller, generated_per_second, prompts, throughput, zones
from bench.gpu.shapes import Shape
from bench.kinds.models import full_attention

_DRAFTED_TOKENS: Final = 4
"""Number of tokens drafted in each step."""
_AT_ONCE: Final = 32


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    model = folder / "llama"
    full_attention(model, **sizes(shape))
    speculation = {"method": "draft_model", "model": str(model), "num_speculative_tokens": _DRAFTED_TOKENS}
    flags = ("--speculative-config", json.dumps(speculation))
    return (
        EngineSpec("stock", None, flags, model=model, dummy=False),
        EngineSpec("zones", zones(), flags, OPEN_METRICS, model=model, dummy=False),
    )


async def _run(context: Context) -> Mapping[str, Any]:
    load = context.shape.load
    rows = []
    for seed in context.seeds:
        asked = prompts(load.equal_prompt, f"draft {seed}", load.equal_answers)
        answers = {}
        for name, engine in context.engines.items():
            context.say(f"seed {seed}: {name}")
            answers[name] = await ask_each(engine, ACME, asked, load.equal_answer)
            callers = [caller(engine, tenant) for tenant in TENANTS]
            before = await _drafts(engine)
            loaded = await throughput(context, engine, callers, _AT_ONCE, f"draft {seed}")
            drafted, accepted = (after - base for after, base in zip(await _drafts(engine), before, strict=True))
            rows.append(
                {
                    "engine": name,
                    "seed": seed,
                    "answers": len(asked),
                    "same as stock": same(answers[name], answers["stock"]),
                    "drafted": int(drafted),
                    "accepted": accepted / drafted if drafted else 0.0,
                    f"tokens/s at {_AT_ONCE}": generated_per_second(loaded),
                }
            )
    return {"rows": rows}


async def _drafts(engine: Engine) -> tuple[float, float]:
    """Returns the numbers of drafted and of accepted tokens since the engine started."""
    shown = await vllm_metrics(engine)
    names = ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")
    drafted, accepted = (total(shown, name) for name in names)
    return drafted, accepted


GROUP: Final = Group("draft", _engines, (Phase("draft", 120.0, _run),))
