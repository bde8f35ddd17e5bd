"""Callers, prompts and loads that several phases use, and the two tenants of the groups other than the default."""

import math
from collections.abc import Sequence
from typing import Any, Final

from bench.gpu.engines import Engine
from bench.gpu.group import Context
from bench.gpu.load import Loaded
from bench.gpu.plan import Caller, Plan, Prompts, Stream
from tenantzone_contract.zone_config.config import ZoneConfig

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
"""Upper bound of token ids in prompts; all models of the groups have these tokens."""


class FailedRequests(Exception):
    """Requests of a load failed; the message has the first error."""


def zones(**terms: Any) -> tuple[ZoneConfig, ...]:
    """Returns the zones of acme, which reserves half of the pool, and burst, with `terms` as further fields of both."""
    return tuple(zone.model_copy(update=terms) for zone in _RESERVING)


def distinct(tokens: int, seed: str) -> Prompts:
    """Returns prompts of equal length without a common prefix.

    Args:
        tokens: the length of each prompt.
        seed: the same seed gives the same prompts.
    """
    return Prompts(_VOCABULARY, 0, tokens, seed)


def prompts(tokens: int, seed: str, count: int) -> list[list[int]]:
    """Returns the first `count` prompts of `distinct`."""
    return [distinct(tokens, seed).prompt(number) for number in range(count)]


def caller(engine: Engine, tenant: str, **fields: str) -> Caller:
    """Returns a tenant as a caller of an engine. `fields` are further body fields of its requests."""
    return Caller(engine.headers(tenant), {**engine.fields(tenant), **fields})


async def throughput(context: Context, engine: Engine, callers: Sequence[Caller], at_once: int, seed: str) -> Loaded:
    """Load an engine with short requests, and count tokens during one window of the throughput phase.

    Args:
        context: the context of the phase.
        engine: the engine to load.
        callers: the callers, among which the requests are divided evenly.
        at_once: the number of requests in flight over all callers; one of the throughput phase's concurrencies.
        seed: the seed of the prompts.

    Raises:
        FailedRequests: a request failed.
    """
    load = context.shape.load
    window = (load.throughput_warm_seconds, load.throughput_warm_seconds + load.throughput_seconds[at_once])
    streams = _streams(engine, callers, load.throughput_prompt, load.throughput_answer, at_once, seed)
    return checked(await context.workers.run(Plan(streams, window)))


async def flood(context: Context, engine: Engine, callers: Sequence[Caller], seed: str) -> Loaded:
    """Load an engine with the long requests of a flood, and count tokens during one window.

    Args:
        context: the context of the phase.
        engine: the engine to load.
        callers: the callers, among which the requests are divided evenly.
        seed: the seed of the prompts.

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
    """Returns one stream for each caller, all with distinct prompts."""
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

    On stock vLLM, this evicts every block that was cached before.

    Args:
        context: the context of the phase.
        engine: the engine to load.
        tenant: the tenant that sends the prompts.
        seed: the seed of the prompts.
        times: how many times the prompts fill the pool.

    Raises:
        FailedRequests: a request failed.
    """
    shape = context.shape
    made = distinct(shape.load.flood_prompt, seed)
    # Count full blocks only: a partial block is not cached, so it is free again when its request ends.
    blocks = made.tokens // shape.block_tokens
    count = math.ceil(times * shape.blocks / blocks)
    stream = Stream(tenant, engine.url, (caller(engine, tenant),), made, 1, arrivals=(0.0,) * count)
    checked(await context.workers.run(Plan((stream,), (0.0, 0.0))))


def checked(loaded: Loaded) -> Loaded:
    """Returns the load unchanged.

    Raises:
        FailedRequests: a request of the load failed.
    """
    for name, answered in loaded.streams.items():
        if answered.failed:
            raise FailedRequests(f"{name}: {answered.failed} of {answered.requests} failed: {answered.errors[:1]}")
    return loaded


def generated_per_second(loaded: Loaded) -> float:
    """Returns the generated tokens per second of all streams."""
    return sum(each.window_generated for each in loaded.streams.values()) / loaded.window_seconds


def tokens_per_second(loaded: Loaded) -> float:
    """Returns the tokens per second of all streams, counting prompts and answers."""
    return sum(each.window_tokens for each in loaded.streams.values()) / loaded.window_seconds
