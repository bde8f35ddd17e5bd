"""Compares greedy answers of zones and stock: cold, cached, after a preemption, and after a tier load."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.gpu.answers import Answer, ask, ask_at_once, ask_each
from bench.gpu.compare import same
from bench.gpu.engines import Engine
from bench.gpu.group import Context
from bench.gpu.plan import Prompts
from bench.gpu.results import EqualRow
from bench.gpu.shapes import Shape
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.zone_config.config import ZoneConfig

_TOP: Final = 20
"""Number of likeliest tokens that are compared at each position."""
_MEASURED, _CLAIMING, _TIERED, _BATCH = "measured", "claiming", "tiered", "batch"
_CLAIM: Final = 0.95
"""Fraction of the pool that one zone reserves and claims, so that requests of another zone are preempted."""
_ATTEMPTS: Final = 5
"""Maximum number of attempts, because on a busy machine requests can end before the claim arrives."""
_STORE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1


async def run(context: Context) -> Mapping[str, Any]:
    """Compare answers in the four cases; returns an `EqualRow` for each."""
    shape, load = context.shape, context.shape.load
    stock, zones = context.engines["stock"], context.engines["zones"]
    await zones.apply(_zones(shape))
    prompts = _prompts(shape, load.equal_answers, load.equal_prompt, "equal")

    async def each(engine: Engine, tenant: str) -> list[Answer]:
        return await ask_each(engine, tenant, prompts, load.equal_answer, logprobs=_TOP)

    context.say("cold")
    cold, ours = await each(stock, _MEASURED), await each(zones, _MEASURED)
    rows = [compared("cold", ours, cold, _found(ours, cold), happened=not any(_cached(ours) + _cached(cold)))]
    context.keep({"rows": rows})
    context.say("cached")
    again, ours = await each(stock, _MEASURED), await each(zones, _MEASURED)
    rows.append(compared("cached", ours, again, _found(ours, again), happened=all(_cached(ours) + _cached(again))))
    context.keep({"rows": rows})
    context.say("after preemption")
    rows.append(await _after_preemption(context, prompts))
    context.keep({"rows": rows})
    context.say("after tier load")
    rows.append(await _after_tier_load(zones, shape, prompts, again))
    return {"rows": rows}


def compared(case: Any, ours: Sequence[Answer], stock: Sequence[Answer], note: str, *, happened: bool) -> EqualRow:
    """Compare answers with stock's answers to the same prompts.

    Args:
        case: the name of the row.
        ours: the answers of the zones engine.
        stock: the answers of stock, which got one request at a time.
        note: the evidence for `happened`.
        happened: whether the case happened.
    """
    pairs = list(zip(ours, stock, strict=True))
    return {
        "case": case,
        "answers": len(pairs),
        "same_tokens": same(ours, stock),
        "same_top_logprobs": sum(
            one.tokens == other.tokens
            and all(a.keys() == b.keys() for a, b in zip(one.top_logprobs, other.top_logprobs, strict=True))
            for one, other in pairs
        ),
        "largest_difference": max((difference(one, other) for one, other in pairs), default=0.0),
        "happened": happened,
        "note": f"{note}; {len({answer.tokens for answer in ours})} distinct answers",
    }


def difference(one: Answer, other: Answer) -> float:
    """Returns the largest difference of log probabilities, up to and including the first position that differs."""
    largest = 0.0
    for place, (ours, theirs) in enumerate(zip(one.top_logprobs, other.top_logprobs, strict=True)):
        largest = max([largest, *(abs(ours[token] - theirs[token]) for token in ours.keys() & theirs.keys())])
        if one.tokens[place] != other.tokens[place]:
            break
    return largest


def _cached(answers: Sequence[Answer]) -> list[int]:
    """Returns the number of cached prompt tokens of each answer."""
    return [answer.cached_tokens for answer in answers]


def _found(ours: Sequence[Answer], stock: Sequence[Answer]) -> str:
    """Returns a sentence on how many prompt tokens each engine found cached."""
    asked = sum(answer.prompt_tokens for answer in ours)
    return f"of {asked:,} prompt tokens, zones found {sum(_cached(ours)):,} and stock {sum(_cached(stock)):,} cached"


def _prompts(shape: Shape, count: int, tokens: int, seed: str) -> list[list[int]]:
    """Returns prompts that differ only in their first half, so that answers which ignore the cache would be equal."""
    first = Prompts(shape.vocabulary, 0, tokens // 2, seed)
    second = Prompts(shape.vocabulary, 0, tokens - tokens // 2, f"{seed}/second half").prompt(0)
    return [[*first.prompt(number), *second] for number in range(count)]


def _zones(shape: Shape) -> tuple[ZoneConfig, ...]:
    load = shape.load
    one = math.ceil((load.equal_prompt + load.equal_answer) / shape.block_tokens) + 1
    # The zones have the same priority, so that the claiming zone lends its reservation while it has no requests.
    return (
        ZoneConfig(name=_MEASURED, tenant=_MEASURED, generation=1, offload="Never"),
        ZoneConfig(name=_CLAIMING, tenant=_CLAIMING, generation=1, reserved=f"{_CLAIM:.0%}", offload="Never"),
        # The zone has room for one prompt only, so each prompt evicts the previous one.
        ZoneConfig(name=_TIERED, tenant=_TIERED, generation=1, limit=one, offload="Prompt"),
    )


async def _after_preemption(context: Context, prompts: Sequence[Sequence[int]]) -> EqualRow:
    """Have another zone claim nearly the whole pool while the measured zone's long answers are generated."""
    shape, tokens = context.shape, context.shape.load.preempted_answer
    stock, zones = context.engines["stock"], context.engines["zones"]
    prompts = prompts[: shape.load.preempted_answers]
    alone = await ask_each(stock, _MEASURED, prompts, tokens, logprobs=_TOP)
    batch = await ask_at_once(stock, _BATCH, prompts, tokens, logprobs=_TOP)
    length = shape.load.equal_prompt
    # The claiming zone holds all its blocks at once, because its answers are as long as the measured ones.
    count = int(_CLAIM * shape.blocks) // math.ceil((length + tokens) / shape.block_tokens)
    preemptions = 0
    for attempt in range(_ATTEMPTS):
        claims = _prompts(shape, count, length, f"claim/{attempt}")
        answers, preemptions = await _preempted(zones, prompts, claims, tokens)
        if preemptions:
            break
    row = compared("after preemption", answers, alone, f"preemptions: {preemptions}", happened=preemptions > 0)
    # Rounding may differ between batches, and these requests share batches with each other and with the claims.
    return {**row, "stock_same_tokens": same(batch, alone)}


async def _preempted(
    zones: Engine, prompts: Sequence[Sequence[int]], claims: Sequence[Sequence[int]], tokens: int
) -> tuple[list[Answer], int]:
    """Send the prompts of one zone, and the claims of another zone once each prompt has its first token.

    Returns:
        The answers to the prompts, and how often the engine preempted requests of their zone.
    """
    before = await _zone(zones, _MEASURED)
    started = [asyncio.Event() for _ in prompts]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(ask(zones, _MEASURED, prompt, tokens, logprobs=_TOP, started=event))
            for prompt, event in zip(prompts, started, strict=True)
        ]
        for event in started:
            await event.wait()
        await ask_at_once(zones, _CLAIMING, claims, tokens)
    return [task.result() for task in tasks], (await _zone(zones, _MEASURED)).preemptions - before.preemptions


async def _after_tier_load(
    zones: Engine, shape: Shape, prompts: Sequence[Sequence[int]], stock: Sequence[Answer]
) -> EqualRow:
    """Send prompts that evict each other, and send them again once the tier has stored them.

    Args:
        zones: the engine with a tier.
        shape: the shape of the model.
        prompts: the prompts to send.
        stock: stock's answers with the prompts cached, so that stock computed as few tokens as after a tier load.
    """
    tokens = shape.load.equal_answer
    await ask_each(zones, _TIERED, prompts, tokens)
    tier = (await zones.report()).tiers[0]
    stored = len(prompts) * (shape.load.equal_prompt // shape.block_tokens) * tier.chunk_bytes
    deadline = time.monotonic() + _STORE_SECONDS
    while True:
        before = (await _zone(zones, _TIERED)).tiers[0]
        if before.held_bytes >= stored or time.monotonic() > deadline:
            break
        await asyncio.sleep(_POLL_SECONDS)
    answers = await ask_each(zones, _TIERED, prompts, tokens, logprobs=_TOP)
    hits = (await _zone(zones, _TIERED)).tiers[0].hits - before.hits
    note = f"chunks loaded from the tier: {hits}; zones found {sum(_cached(answers)):,} prompt tokens cached"
    return compared("after tier load", answers, stock, note, happened=hits > 0)


async def _zone(engine: Engine, name: str) -> ZoneReport:
    """Returns one zone from the next report that the engine publishes."""
    asked = time.time()
    report = await engine.report()
    while report.published_unix_time < asked:
        await asyncio.sleep(_POLL_SECONDS)
        report = await engine.report()
    return next(zone for zone in report.zones if zone.name == name)
