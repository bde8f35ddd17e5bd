"""The story: a session that moves between engines, a flood, servers that are killed, and engines that come and go."""

import threading
from collections import Counter
from collections.abc import Sequence

from hack.demo.console import chapter, say, table, took
from hack.demo.engines import BLOCK_TOKENS
from hack.demo.story.asking import Answer, make_prompt
from hack.demo.story.claims import Claims
from hack.fleet.killing import Killed, await_written, is_killed, problem_of_engine_a
from hack.fleet.stack import Fleet

SESSION_BLOCKS = 24
FLOOR_CHUNKS = 1000
FLOOD_CHUNKS = 120
FLOOD_PROMPTS = 30


def run_story(fleet: Fleet) -> Claims:
    """Run all chapters, and collect the claims."""
    claims = Claims()
    chapter("The group")
    size = f"{fleet.object_bytes:,} bytes"
    say(f"A chunk takes {size}. acme is promised {FLOOR_CHUNKS} of them, burst may store {FLOOD_CHUNKS}.")
    fleet.share(FLOOR_CHUNKS, FLOOD_CHUNKS)
    _have_storage_opened(fleet, (0, 1))
    session = _session_moves(fleet, claims)
    _flood(fleet, claims, session)
    is_killed(
        fleet, claims, "c", Killed("The manager", fleet.manager.kill, fleet.manager.start, problem_of_engine_a(fleet))
    )
    if fleet.redis is not None:
        redis = Killed("Redis, which has the index,", fleet.redis.kill, fleet.redis.start, problem_of_engine_a(fleet))
        is_killed(fleet, claims, "d", redis)
        _is_still_there(fleet, claims, session)
    what = "The S3 server, with all that it holds,"
    bucket = Killed(what, fleet.bucket.server.kill, fleet.bucket.start, fleet.storage_problem)
    is_killed(fleet, claims, "e", bucket)
    _engines_come_and_go(fleet, claims)
    chapter("The storages")
    fleet.show_storages()
    return claims


def _have_storage_opened(fleet: Fleet, engines: Sequence[int]) -> None:
    """Have engines create their S3 clients with a first chunk: that takes a second, longer than a load waits."""
    for engine in engines:
        before = fleet.written("acme")
        fleet.tenant("acme", engine).ask(make_prompt(fleet.model, 2, seed=f"hello {engine}"), answer_tokens=1)
        await_written(fleet, "acme", before + 1)


def _session_moves(fleet: Fleet, claims: Claims) -> str:
    chapter("a. A session begins on engine A and goes on on engine B")
    session = make_prompt(fleet.model, SESSION_BLOCKS, seed="session")
    before = fleet.written("acme")
    begun = fleet.tenant("acme", 0).ask(session)
    blocks = begun.prompt_tokens // BLOCK_TOKENS
    await_written(fleet, "acme", before + blocks)
    moved = fleet.tenant("acme", 1).ask(session)
    longer = session + make_prompt(fleet.model, 8, seed="the next turn")
    next_turn = fleet.tenant("acme", 1).ask(longer)
    await_written(fleet, "acme", before + next_turn.prompt_tokens // BLOCK_TOKENS)
    back = fleet.tenant("acme", 0).ask(longer)
    stranger = fleet.tenant("burst", 1).ask(session)
    _show(
        {
            "acme begins, engine A": begun,
            "acme goes on, engine B": moved,
            "acme's next turn, engine B": next_turn,
            "acme comes back, engine A": back,
            "burst asks the same, engine B": stranger,
        }
    )
    kept = moved.cached_tokens // BLOCK_TOKENS
    claims.check(
        "a", "a session goes on with its blocks on another engine", f"{kept} of {blocks}", held=kept >= 0.95 * blocks
    )
    claims.check(
        "a",
        "another tenant with the same prompt gets nothing",
        f"{stranger.cached_tokens} cached tokens",
        held=not stranger.cached_tokens,
    )
    return longer


def _flood(fleet: Fleet, claims: Claims, session: str) -> None:
    chapter("b. burst floods both engines")
    before = {tenant: fleet.held(tenant) for tenant in ("acme", "burst")}
    with took(f"burst asks {FLOOD_PROMPTS} distinct prompts on each engine"):
        threads = [threading.Thread(target=_ask_many, args=(fleet, engine)) for engine in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    after = {tenant: fleet.held(tenant) for tenant in ("acme", "burst")}
    refused = Counter[str]()
    for engine in (0, 1):
        for zone in fleet.report(engine).zones:
            refused[zone.tenant] += sum(tier.writes_refused for tier in zone.tiers if tier.tier == "shared")
    limits = {"acme": fleet.floor_chunks, "burst": fleet.flood_chunks}
    table(
        ("chunks in the storage", "quota", "before", "after", "not stored"),
        [
            (tenant, str(limits[tenant]), str(before[tenant]), str(after[tenant]), str(refused[tenant]))
            for tenant in ("acme", "burst")
        ],
    )
    claims.check(
        "b",
        "the flood does not take a byte of acme's floor",
        f"{after['acme']} of {before['acme']} chunks",
        held=after["acme"] >= before["acme"],
    )
    claims.check(
        "b",
        "the flood stays within its own limit",
        f"{after['burst']} of {fleet.flood_chunks} chunks",
        held=after["burst"] <= fleet.flood_chunks,
    )
    found = fleet.tenant("acme", 1).ask(session)
    full = found.prompt_tokens // BLOCK_TOKENS
    kept = found.cached_tokens // BLOCK_TOKENS
    claims.check("b", "acme's session is found after it", f"{kept} of {full} blocks", held=kept >= 0.95 * (full - 1))
    fleet.show_storages()


def _ask_many(fleet: Fleet, engine: int) -> None:
    tenant = fleet.tenant("burst", engine)
    for number in range(FLOOD_PROMPTS):
        tenant.ask(make_prompt(fleet.model, 32, seed=f"flood {engine} {number}"), answer_tokens=1)


def _is_still_there(fleet: Fleet, claims: Claims, session: str) -> None:
    _ask_many(fleet, 1)
    found = fleet.tenant("acme", 1).ask(session)
    full, kept = found.prompt_tokens // BLOCK_TOKENS, found.cached_tokens // BLOCK_TOKENS
    claims.check("d", "what was there before is found", f"{kept} of {full} blocks", held=kept >= 0.95 * (full - 1))


def _engines_come_and_go(fleet: Fleet, claims: Claims) -> None:
    chapter("f. One engine, three engines, one engine")
    prompts = [make_prompt(fleet.model, SESSION_BLOCKS, seed=f"session {number}") for number in range(6)]
    for prompt in prompts:
        before = fleet.written("acme")
        blocks = fleet.tenant("acme", 0).ask(prompt).prompt_tokens // BLOCK_TOKENS
        await_written(fleet, "acme", before + blocks)
    shares = {"1 engine": _found(fleet, prompts, [0])}
    fleet.grow()
    _have_storage_opened(fleet, (2,))
    shares["3 engines"] = _found(fleet, prompts, [1, 2, 0])
    for engine in (0, 1):
        # As by a scheduler that takes the machine: what engine A had computed the last engine finds.
        fleet.end(engine)
    shares["1 engine again"] = _found(fleet, prompts, [2])
    table(("", "of its tokens found"), [(name, f"{share:.1%}") for name, share in shares.items()])
    least, most = min(shares.values()), max(shares.values())
    claims.check("f", "hits stay as they were", f"{least:.1%} to {most:.1%}", held=least >= 0.95 * most > 0.9)


def _found(fleet: Fleet, prompts: Sequence[str], engines: Sequence[int]) -> float:
    """Returns the share of the prompts' tokens found in the cache when each engine is sent them again in turn."""
    answers = [fleet.tenant("acme", engines[n % len(engines)]).ask(prompt) for n, prompt in enumerate(prompts)]
    return sum(answer.cached_tokens for answer in answers) / sum(answer.prompt_tokens for answer in answers)


def _show(answers: dict[str, Answer]) -> None:
    table(
        ("", "prompt tokens", "cached tokens"),
        [(who, str(answer.prompt_tokens), str(answer.cached_tokens)) for who, answer in answers.items()],
    )
