"""Measure how long an engine's steps take, by asking it over HTTP, and write that down for ``compare --profile``.

Prompts of several lengths are asked alone, which tells what computing a prompt takes; then several at a time are
answered at length, which tells what a step of so many answers takes. The engine should have nothing else to do.
"""

import argparse
import asyncio
import random
import statistics
import sys
from typing import Final
from urllib.parse import urlsplit

from tenantzone_replay.engine_client import EngineClient, new_prompt
from tenantzone_replay.load import TraceError
from tenantzone_replay.measured import Measured, Sample, described, errors, fitted, work_of
from tenantzone_replay.option_types import file_to_write, whole

_REPEATS: Final = 5
_ANSWER: Final = 24
"""Tokens of answers whose steps are measured."""
_SHORTEST_STEP: Final = 1e-5
"""Seconds; what is measured as less is noise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say which engine it is."""
    parser.add_argument(
        "url", type=_url, metavar="URL", help="of the engine's OpenAI API, http://127.0.0.1:8000 for instance"
    )
    parser.add_argument("--out", type=file_to_write, required=True, metavar="FILE", help="write what was found there")
    parser.add_argument("--model", default="", help="as it is served (default: the first one)")
    parser.add_argument("--key", default="", help="API key (default: none)")
    parser.add_argument(
        "--step-tokens",
        type=whole(64),
        default=2048,
        help="that one step of the engine may compute (default: %(default)s)",
    )
    parser.add_argument(
        "--at-once", type=whole(), nargs="+", default=[1, 2, 4, 8, 16, 32], help="answers (default: 1 2 4 8 16 32)"
    )
    parser.add_argument("--blocks", type=whole(), default=0, help="of the engine (default: as its /metrics says)")
    parser.add_argument("--block-tokens", type=whole(), default=0, help="default: as its /metrics says, or 16")
    parser.add_argument(
        "--cache-bytes-per-token", type=whole(), default=0, help="for the GiB of advice (default: unknown)"
    )
    parser.add_argument("--gpus", type=whole(), default=1, help="of the engine, for GPU seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    """Measure, print how well it fits, and write it down.

    Raises:
        TraceError: the engine can't be asked.
    """
    measured, samples = asyncio.run(_measure(options))
    off = errors(measured, samples)
    measured = described(measured, options.cache_bytes_per_token, options.gpus)
    measured.write(options.out)
    print(
        f"{measured.name}: a step takes {1e3 * measured.step:.3f} ms, and {1e6 * measured.token:.2f} us a token, "
        f"{1e6 * measured.request:.1f} us a request, {1e9 * measured.pair:.3f} ns a pair of tokens that attend, "
        f"{1e9 * measured.read:.2f} ns a token that is read; the way to the engine and back takes "
        f"{1e3 * measured.first_token:.2f} ms"
    )
    print(
        f"{len(samples)} medians of {_REPEATS}: they are off by {statistics.median(off):.1%} in the median, "
        f"{max(off):.1%} at most"
    )
    if not measured.block_count:
        print("the engine does not say how many blocks it has: name --blocks to compare", file=sys.stderr)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no URL of an API; it begins with http:// or https://, and names a host"
        )
    return text


async def _measure(options: argparse.Namespace) -> tuple[Measured, list[Sample]]:
    dice = random.Random(options.seed)
    async with EngineClient(options.url, options.model, options.key) as engine:
        blocks, block_tokens = await engine.cache_size()
        blocks, block_tokens = options.blocks or blocks, options.block_tokens or block_tokens or 16
        longest = min(options.step_tokens, engine.longest - _ANSWER - 2)
        if longest < 64:
            raise TraceError(f"the engine takes {engine.longest} tokens at most: too few to measure it")
        # The first ones warm up what is compiled or allocated late.
        await engine.ask(new_prompt(dice, longest), _ANSWER)
        samples = [await _prompt(engine, dice, tokens) for tokens in _lengths(longest)]
        room = blocks * block_tokens or engine.longest
        for at_once in options.at_once:
            for tokens in {16, longest // 2}:
                if at_once * (tokens + _ANSWER) <= room:
                    samples.append(await _answers(engine, dice, at_once, tokens))
        return fitted(samples, engine.model, blocks, block_tokens), samples


def _lengths(longest: int) -> list[int]:
    """Each a half more than the one before."""
    lengths = [16]
    while lengths[-1] * 1.5 < longest:
        lengths.append(int(lengths[-1] * 1.5))
    return [*lengths, longest]


async def _prompt(engine: EngineClient, dice: random.Random, tokens: int) -> Sample:
    seconds = [(await engine.ask(new_prompt(dice, tokens), 1)).first_token_seconds for _ in range(_REPEATS)]
    _say(f"  a prompt of {tokens:,} tokens: {1e3 * statistics.median(seconds):.1f} ms to the first token")
    return Sample(work_of([(tokens, tokens)]), statistics.median(seconds), with_first_token=True)


async def _answers(engine: EngineClient, dice: random.Random, at_once: int, tokens: int) -> Sample:
    # Tokens may come in bursts, so it is told by whole answers: long ones less those of one token.
    one: list[float] = []
    many: list[float] = []
    for _ in range(_REPEATS):
        for answer_tokens, seconds in ((1, one), (1 + _ANSWER, many)):
            prompts = [new_prompt(dice, tokens) for _ in range(at_once)]
            answers = await engine.ask_at_once(prompts, answer_tokens)
            seconds.append(max(each.tokens[-1] for each in answers) - min(each.sent for each in answers))
    step = max(_SHORTEST_STEP, (statistics.median(many) - statistics.median(one)) / _ANSWER)
    _say(f"  {at_once} answers at a time to {tokens:,} tokens: {1e3 * step:.2f} ms a step")
    return Sample(work_of([(1, tokens + _ANSWER // 2)] * at_once), step, with_first_token=False)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
