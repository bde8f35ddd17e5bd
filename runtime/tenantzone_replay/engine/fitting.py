"""Measures an engine over its HTTP API, for the command ``fit``."""

import argparse
import random
import statistics
import sys
from typing import Final

from tenantzone_replay.engine.engine_client import EngineClient, new_prompt
from tenantzone_replay.engine.measured import Measured, Sample, fitted, work_of
from tenantzone_replay.traces.load import TraceError

REPEATS: Final = 5
_ANSWER: Final = 24
"""Number of decode steps that are measured together. Their average is the time of one step."""
_SHORTEST_STEP: Final = 1e-5
"""Minimum time of a step, in seconds. Shorter measured times are noise and are replaced by this value."""


async def measure(options: argparse.Namespace) -> tuple[Measured, list[Sample]]:
    """Measure the engine. Returns its fitted costs, and the samples to which the costs were fitted.

    Raises:
        TraceError: the engine can't be reached or measured.
    """
    rng = random.Random(options.seed)
    async with EngineClient(options.url, options.model, options.key) as engine:
        blocks, block_tokens = await engine.cache_size()
        blocks, block_tokens = options.blocks or blocks, options.block_tokens or block_tokens or 16
        longest = min(options.step_tokens, engine.longest - _ANSWER - 2)
        if longest < 64:
            raise TraceError(
                f"the engine accepts at most {engine.longest} tokens per request, which is too few to measure it; "
                "start it with a larger --max-model-len"
            )
        # Warm up, because the engine compiles kernels and allocates memory on the first request.
        await engine.ask(new_prompt(rng, longest), _ANSWER)
        samples = [await _prompt(engine, rng, tokens) for tokens in _lengths(longest)]
        room = blocks * block_tokens or engine.longest
        for at_once in options.at_once:
            for tokens in {16, longest // 2}:
                if at_once * (tokens + _ANSWER) <= room:
                    samples.append(await _answers(engine, rng, at_once, tokens))
        return fitted(samples, engine.model, blocks, block_tokens), samples


def _lengths(longest: int) -> list[int]:
    """Returns prompt lengths from 16 to ``longest`` tokens, each about 1.5 times the previous length."""
    lengths = [16]
    while lengths[-1] * 1.5 < longest:
        lengths.append(int(lengths[-1] * 1.5))
    return [*lengths, longest]


async def _prompt(engine: EngineClient, rng: random.Random, tokens: int) -> Sample:
    seconds = [(await engine.ask(new_prompt(rng, tokens), 1)).first_token_seconds for _ in range(REPEATS)]
    _say(f"  a prompt of {tokens:,} tokens: {1e3 * statistics.median(seconds):.1f} ms to the first token")
    return Sample(work_of([(tokens, tokens)]), statistics.median(seconds), with_first_token=True)


async def _answers(engine: EngineClient, rng: random.Random, at_once: int, tokens: int) -> Sample:
    # Subtract the time of one-token answers from the time of long answers. The time of a single token can't be
    # measured, because tokens may arrive in bursts.
    one: list[float] = []
    many: list[float] = []
    for _ in range(REPEATS):
        for answer_tokens, seconds in ((1, one), (1 + _ANSWER, many)):
            prompts = [new_prompt(rng, tokens) for _ in range(at_once)]
            answers = await engine.ask_at_once(prompts, answer_tokens)
            seconds.append(max(each.tokens[-1] for each in answers) - min(each.sent for each in answers))
    step = max(_SHORTEST_STEP, (statistics.median(many) - statistics.median(one)) / _ANSWER)
    _say(f"  {at_once} answers at a time to {tokens:,} tokens: {1e3 * step:.2f} ms a step")
    return Sample(work_of([(1, tokens + _ANSWER // 2)] * at_once), step, with_first_token=False)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
