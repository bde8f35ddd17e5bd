"""The story: what two tenants see of each other on one engine, with zones and without."""

import statistics

from hack.demo.console import chapter, say, table, took
from hack.demo.engines import BLOCKS
from hack.demo.stack import Stack
from hack.demo.story.asking import Answer, Tenant, make_prompt, tenant_with_key, tenant_with_salt
from hack.demo.story.claims import Claims
from hack.demo.story.flood import flood
from hack.demo.story.patches import PATCHES, measure_patches
from hack.demo.story.refusals import refuse_invalid, refuse_overcommit
from hack.demo.story.view import show_zones

PROMPT_BLOCKS = 60
TURNOVERS = 3.0
CLAIMED_ACKNOWLEDGEMENT_SECONDS = 1.0


def run_story(stack: Stack) -> Claims:
    """Run all chapters, and collect the claims."""
    claims = Claims()
    prompt = make_prompt(stack.model, PROMPT_BLOCKS, seed="handbook")
    acme, burst = (tenant_with_key(name, stack.keys[name], stack.zone, stack.model) for name in ("acme", "burst"))
    _same_prompt(stack, claims, acme, burst, prompt)
    _floods(stack, claims, acme, burst, prompt)
    _patches(stack, claims)
    refuse_overcommit(stack, claims)
    refuse_invalid(stack, claims)
    return claims


def _same_prompt(stack: Stack, claims: Claims, acme: Tenant, burst: Tenant, prompt: str) -> None:
    chapter("a. The same prompt from two tenants")
    say("acme asks a long question, then burst asks the very same one; then both ask it again.")
    answers = {
        (tenant.name, occasion): tenant.ask(prompt)
        for tenant, occasion in ((acme, "first"), (burst, "first"), (acme, "again"), (burst, "again"))
    }
    _show_answers(stack, {f"{name}, {occasion}": answer for (name, occasion), answer in answers.items()})
    stolen = answers["burst", "first"].cached_tokens
    claims.check("a", "burst gets nothing of acme's cache", f"{stolen} cached tokens", held=stolen == 0)
    for name in ("acme", "burst"):
        own = answers[name, "again"].cached_tokens
        claims.check("a", f"{name} gets its own back on a repeat", f"{own} cached tokens", held=own > 0)
    show_zones(stack)


def _floods(stack: Stack, claims: Claims, acme: Tenant, burst: Tenant, prompt: str) -> None:
    assert stack.stock is not None, "the story compares with a stock engine"
    stock_acme, stock_burst = (tenant_with_salt(name, stack.stock, stack.model) for name in ("acme", "burst"))
    chapter("b, c. burst floods: an engine with zones, and stock vLLM next to it")
    say(f"Stock vLLM has the same model and the same {BLOCKS} blocks; each tenant sends a cache salt of its own.")
    stock_acme.ask(prompt)
    before = {"with zones": acme.ask(prompt), "stock": stock_acme.ask(prompt)}
    what = f"burst asks distinct prompts on both until each pool was turned over {TURNOVERS:.0f} times"
    with took(what):
        floods = flood([burst, stock_burst], TURNOVERS)
    after = {"with zones": acme.ask(prompt), "stock": stock_acme.ask(prompt)}

    say("\nacme's long question, cached tokens:")
    table(
        ("", "TenantZone", "stock vLLM"),
        [
            ("before the flood", *(str(answer.cached_tokens) for answer in before.values())),
            ("flood: requests", *(str(one.requests) for one in floods)),
            ("flood: blocks", *(str(one.blocks) for one in floods)),
            ("after the flood", *(str(answer.cached_tokens) for answer in after.values())),
            *_latency_rows(stack, before, after),
        ],
    )
    kept, had = after["with zones"].cached_tokens, before["with zones"].cached_tokens
    claims.check("b", "acme keeps its cache through burst's flood", f"{kept} of {had} tokens", held=0 < had <= kept)
    kept, had = after["stock"].cached_tokens, before["stock"].cached_tokens
    claims.check("c", "on stock vLLM the same flood evicts it", f"{kept} of {had} tokens", held=kept == 0 < had)
    show_zones(stack)


def _patches(stack: Stack, claims: Claims) -> None:
    chapter("d. A patch, and the engine's acknowledgement")
    say(f"{PATCHES} times kubectl patch changes burst's reservation. The clock starts before kubectl does.")
    patches = measure_patches(stack)
    acknowledged = [patch.acknowledged for patch in patches]
    programmed = [patch.programmed for patch in patches]
    table(
        ("seconds from the patch to", "min", "median", "max"),
        [
            ("the engine's own report", *_spread(acknowledged)),
            ("condition Programmed of that generation", *_spread(programmed)),
        ],
    )
    median = statistics.median(acknowledged)
    claims.check(
        "d",
        f"an engine acknowledges a patch in under {CLAIMED_ACKNOWLEDGEMENT_SECONDS:.0f} s (median of {PATCHES})",
        f"{median:.2f} s",
        held=median < CLAIMED_ACKNOWLEDGEMENT_SECONDS,
    )
    show_zones(stack)


def _spread(values: list[float]) -> tuple[str, str, str]:
    return f"{min(values):.2f}", f"{statistics.median(values):.2f}", f"{max(values):.2f}"


def _show_answers(stack: Stack, answers: dict[str, Answer]) -> None:
    latency = stack.model.shows_latency
    table(
        ("", "prompt tokens", "cached tokens", *(("first token",) if latency else ())),
        [
            (
                who,
                str(answer.prompt_tokens),
                str(answer.cached_tokens),
                *((_seconds(answer),) if latency else ()),
            )
            for who, answer in answers.items()
        ],
    )


def _latency_rows(stack: Stack, before: dict[str, Answer], after: dict[str, Answer]) -> list[tuple[str, ...]]:
    if not stack.model.shows_latency:
        return []
    return [
        (f"first token, {when}", *(_seconds(answer) for answer in answers.values()))
        for when, answers in (("before", before), ("after", after))
    ]


def _seconds(answer: Answer) -> str:
    return f"{answer.first_token_seconds:.2f} s"
