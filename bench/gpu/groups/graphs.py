"""Measures CUDA graphs and torch.compile: whether engines start with them, equal answers, and tokens per second."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.gpu.answers import ask_each
from bench.gpu.compare import same
from bench.gpu.engines import Engine, EngineError, EngineSpec
from bench.gpu.group import Context, Group, NotPossible, Phase
from bench.gpu.loads import ACME, TENANTS, caller, generated_per_second, prompts, throughput, zones
from bench.gpu.shapes import Shape

_START_SECONDS: Final = 240.0
"""Time limit for a start, short enough that all ways fit into the phase's limit even if no engine starts."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run without eager mode.

    Attributes:
        name: the name in the table.
        compilation: the value of vLLM's ``--compilation-config``; None for vLLM's default.
        last_resort: whether to try this way only if engines start in no other way.
    """

    name: str
    compilation: Mapping[str, Any] | None = None
    last_resort: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Returns the vLLM flags for this way."""
        return () if self.compilation is None else ("--compilation-config", json.dumps(self.compilation))


_DECODE: Final = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
_ON_A_GPU: Final = (
    Way("decode graphs without a compiler", _DECODE),
    Way("piecewise graphs and torch.compile"),
    Way("decode graphs of a few sizes", {**_DECODE, "cudagraph_capture_sizes": [1, 8, 32]}, last_resort=True),
)
_ON_CPUS: Final = (Way("torch.compile"),)


def _no_engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    """Returns no engines, because the phase starts a pair of engines for each way."""
    return ()


async def _run(context: Context) -> Mapping[str, Any]:
    if not context.shape.on_gpu and shutil.which("g++") is None:
        raise NotPossible("torch.compile needs a C++ compiler on a CPU, and there is no g++")
    rows: list[Mapping[str, Any]] = []
    starts: list[dict[str, Any]] = []
    for way in _ON_A_GPU if context.shape.on_gpu else _ON_CPUS:
        if way.last_resort and rows:
            continue
        context.say(way.name)
        specs = [
            EngineSpec(name, declared, way.flags, _own_cache(context, way, name), eager=False)
            for name, declared in (("stock", None), ("zones", zones()))
        ]
        try:
            async with context.start(specs, _START_SECONDS) as engines:
                commands = {name: engine.command for name, engine in engines.items()}
                starts.append({"way": way.name, "outcome": "started", "why": "", "commands": commands})
                await _measure(context, way, engines, rows, starts)
        except EngineError as error:
            context.say(f"{way.name}: {error}")
            starts.append({"way": way.name, "outcome": "failed", "why": str(error)})
            context.keep({"rows": rows, "starts": starts})
    if not rows:
        raise EngineError("\n".join(f"{start['way']}: {start['why']}" for start in starts))
    return {"rows": rows, "starts": starts}


def _own_cache(context: Context, way: Way, engine: str) -> Mapping[str, str]:
    """Returns an environment with a separate cache of compiled code, so that each start compiles everything."""
    # The path must not contain spaces, because vLLM calls the C++ compiler without quotes around it.
    return {"VLLM_CACHE_ROOT": str(context.folder / "caches" / way.name.replace(" ", "-") / engine)}


async def _measure(
    context: Context,
    way: Way,
    engines: Mapping[str, Engine],
    rows: list[Mapping[str, Any]],
    starts: Sequence[Mapping[str, Any]],
) -> None:
    """Measure both engines once per seed; add the results to the rows, and keep them together with the starts."""
    load = context.shape.load
    for seed in context.seeds:
        asked = prompts(load.equal_prompt, f"graphs {seed}", load.equal_answers)
        answers = {}
        for name, engine in engines.items():
            context.say(f"{way.name}, seed {seed}: {name}")
            answers[name] = await ask_each(engine, ACME, asked, load.equal_answer)
            callers = [caller(engine, tenant) for tenant in TENANTS]
            alone = await throughput(context, engine, callers[:1], 1, f"graphs alone {seed}")
            many = await throughput(context, engine, callers, 32, f"graphs {seed}")
            rows.append(
                {
                    "way": way.name,
                    "engine": name,
                    "seed": seed,
                    "ready, s": engine.ready_seconds,
                    "answers": len(asked),
                    "same as stock": same(answers[name], answers["stock"]),
                    "tokens/s at 1": generated_per_second(alone),
                    "tokens/s at 32": generated_per_second(many),
                }
            )
            context.keep({"rows": rows, "starts": starts})


GROUP: Final = Group("graphs", _no_engines, (Phase("graphs", 900.0, _run),))
