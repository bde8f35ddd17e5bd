"""Callers, prompts and loads that several phases use, and the two tenants of the further groups."""

import math
from collections.abc import Sequence
from typing import Any, Final

from bench.gpu.engines import Engine
from bench.gpu.group import Context
from bench.gpu.load import Loaded
from bench.gpu.plan import Caller, Plan, Prompts, Stream
from tenantzone_contract.config import ZoneConfig

ACME: Final = "acme"
"""The tenant with a reservation."""
BURST: Final = "burst"
"""The tenant that floods."""
TENANTS: Final = (ACME, BURST)

_RESERVING: Final = (
    ZoneConfig(name=ACME, tenant=ACME, generation=1, reserved="50%", priority=10),
    ZoneConfig(name=BURST, tenant=BURST, generation=1, limit="60%"),
)
_VOCABULARY: Final = 4096
"""Prompts consist of tokens below this number, which every model of the groups knows."""


class FailedRequests(Exception):
    """Requests of a load failed; the message has the first reason."""


def zones(**terms: Any) -> tuple[ZoneConfig, ...]:
    """Both tenants' zones: half of the pool is reserved for acme. `terms` are further fields of both zones."""
    return tuple(zone.model_copy(update=terms) for zone in _RESERVING)


def distinct(tokens: int, seed: str) -> Prompts:
    """Prompts of equal length that share no tokens.

    Args:
        tokens: of each prompt.
        seed: the same seed gives the same prompts.
    """
    return Prompts(_VOCABULARY, 0, tokens, seed)


def prompts(tokens: int, seed: str, count: int) -> list[list[int]]:
    """The first prompts of `distinct`."""
    return [distinct(tokens, seed).prompt(number) for number in range(count)]


def caller(engine: Engine, tenant: str, **fields: str) -> Caller:
    """A tenant as a caller of an engine. `fields` are further fields of its requests' bodies."""
    return Caller(engine.headers(tenant), {**engine.fields(tenant), **fields})


async def throughput(context: Context, engine: Engine, callers: Sequence[Caller], at_once: int, seed: str) -> Loaded:
    """Load an engine with short requests, and count for one window of the throughput phase.

    Args:
        context: of the phase.
        engine: to load.
        callers: the requests are divided evenly among them.
        at_once: requests of all callers that are always unanswered; one of the throughput phase's numbers.
        seed: of the prompts.

    Raises:
        FailedRequests: a request failed.
    """
    load = context.shape.load
    window = (load.throughput_warm_seconds, load.throughput_warm_seconds + load.throughput_seconds[at_once])
    streams = _streams(engine, callers, load.throughput_prompt, load.throughput_answer, at_once, seed)
    return checked(await context.workers.run(Plan(streams, window)))


async def flood(context: Context, engine: Engine, callers: Sequence[Caller], seed: str) -> Loaded:
    """Load an engine with the long requests of a flood, and count for one window.

    Args:
        context: of the phase.
        engine: to load.
        callers: the requests are divided evenly among them.
        seed: of the prompts.

    Raises:
        FailedRequests: a request failed.
    """
    load = context.shape.load
    streams = _streams(engine, callers, load.flood_prompt, load.flood_answer, load.flood_at_once, seed)
    return checked(
        await context.workers.run(Plan(streams, (load.warm_seconds, load.warm_seconds + load.window_seconds)))
    )


def _streams(
    engine: Engine, callers: Sequence[Caller], prompt: int, answer: int, at_once: int, seed: str
) -> tuple[Stream, ...]:
    """A stream of each caller, all with distinct prompts."""
    return tuple(
        Stream(
            f"caller {number}",
            engine.url,
            (each,),
            distinct(prompt, f"{seed}/{number}"),
            answer,
            at_once=at_once // len(callers),
            stagger=True,
        )
        for number, each in enumerate(callers)
    )


async def fill_pool(context: Context, engine: Engine, tenant: str, seed: str, times: int = 1) -> None:
    """Send distinct prompts that fill the pool, all at once, and wait for the answers.

    On stock vLLM no block that was cached before remains cached.

    Args:
        context: of the phase.
        engine: to load.
        tenant: that sends the prompts.
        seed: of the prompts.
        times: how often the prompts fill the pool.

    Raises:
        FailedRequests: a request failed.
    """
    shape = context.shape
    made = distinct(shape.load.flood_prompt, seed)
    # A block that is not full is not cached, so it evicts nothing for longer than its request runs.
    blocks = made.tokens // shape.block_tokens
    count = math.ceil(times * shape.blocks / blocks)
    stream = Stream(tenant, engine.url, (caller(engine, tenant),), made, 1, arrivals=(0.0,) * count)
    checked(await context.workers.run(Plan((stream,), (0.0, 0.0))))


def checked(loaded: Loaded) -> Loaded:
    """The load itself.

    Raises:
        FailedRequests: a request of it failed.
    """
    for name, answered in loaded.streams.items():
        if answered.failed:
            raise FailedRequests(f"{name}: {answered.failed} of {answered.requests} failed: {answered.errors[:1]}")
    return loaded


def generated_per_second(loaded: Loaded) -> float:
    """Generated tokens per second of all streams."""
    return sum(each.window_generated for each in loaded.streams.values()) / loaded.window_seconds


def tokens_per_second(loaded: Loaded) -> float:
    """Tokens of prompts and answers per second of all streams."""
    return sum(each.window_tokens for each in loaded.streams.values()) / loaded.window_seconds
