"""The story: a session that moves between engines, a flood, a manager that is killed, and an engine that is."""

import threading
from collections import Counter

from openai import OpenAIError

from hack.demo.asking import Answer, make_prompt
from hack.demo.claims import Claims
from hack.demo.console import chapter, say, table, took, wait_until
from hack.demo.engines import BLOCK_TOKENS
from hack.fleet.stack import Fleet

SESSION_BLOCKS = 40
FLOOR_CHUNKS = 400
FLOOD_CHUNKS = 120
FLOOD_PROMPTS = 30
_SECONDS = 120.0


def tell(fleet: Fleet) -> Claims:
    """Tell all of it, and collect the claims."""
    claims = Claims()
    chapter("The groups")
    fleet.share(FLOOR_CHUNKS, FLOOD_CHUNKS)
    say(f"A chunk takes {fleet.object_bytes:,} bytes. acme's group has {FLOOR_CHUNKS} of them, burst's {FLOOD_CHUNKS}.")
    session = _session_moves(fleet, claims)
    _flood(fleet, claims, session)
    _manager_is_killed(fleet, claims)
    _engine_is_killed(fleet, claims)
    _show_storages(fleet)
    return claims


def _session_moves(fleet: Fleet, claims: Claims) -> str:
    chapter("a. A session begins on engine A and goes on on engine B")
    session = make_prompt(fleet.model, SESSION_BLOCKS, seed="session")
    begun = fleet.tenant("acme", 0).ask(session)
    blocks = begun.prompt_tokens // BLOCK_TOKENS
    _await_held(fleet, "acme", blocks)
    moved = fleet.tenant("acme", 1).ask(session)
    longer = session + make_prompt(fleet.model, 8, seed="the next turn")
    next_turn = fleet.tenant("acme", 1).ask(longer)
    _await_held(fleet, "acme", next_turn.prompt_tokens // BLOCK_TOKENS)
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
        ("chunks in the storage", "limit", "before", "after", "not stored"),
        [
            (tenant, str(limits[tenant]), str(before[tenant]), str(after[tenant]), str(refused[tenant]))
            for tenant in ("acme", "burst")
        ],
    )
    claims.check(
        "b",
        "the flood does not take a byte of acme's",
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


def _ask_many(fleet: Fleet, engine: int) -> None:
    tenant = fleet.tenant("burst", engine)
    for number in range(FLOOD_PROMPTS):
        tenant.ask(make_prompt(fleet.model, 32, seed=f"flood {engine} {number}"), answer_tokens=1)


def _manager_is_killed(fleet: Fleet, claims: Claims) -> None:
    chapter("c. The manager is killed under load")
    asked: dict[str, list[int]] = {"before": [], "without it": [], "again": []}
    failed = Counter[str]()
    phase, stopping = ["before"], threading.Event()

    def keep_asking(engine: int) -> None:
        tenant, number = fleet.tenant("acme", engine), 0
        while not stopping.is_set():
            number += 1
            try:
                answer = tenant.ask(make_prompt(fleet.model, 8, seed=f"load {engine} {number % 5}"), answer_tokens=1)
                asked[phase[0]].append(answer.cached_tokens)
            except OpenAIError:
                failed[phase[0]] += 1

    def wait_for(count: int) -> None:
        wait_until(lambda: len(asked[phase[0]]) >= count, lambda: f"requests {phase[0]}", timeout=_SECONDS, poll=0.1)

    threads = [threading.Thread(target=keep_asking, args=(engine,)) for engine in (0, 1)]
    for thread in threads:
        thread.start()
    wait_for(20)
    fleet.manager.kill()
    phase[0] = "without it"
    wait_until(lambda: bool(fleet.problem(0)), lambda: "engine A to notice", timeout=_SECONDS, poll=0.1)
    say(f"engine A says: {fleet.problem(0)}")
    wait_for(20)
    fleet.manager.start()
    phase[0] = "again"
    wait_until(
        lambda: not fleet.problem(0) and not fleet.problem(1), lambda: "both to find it", timeout=_SECONDS, poll=0.1
    )
    wait_for(20)
    stopping.set()
    for thread in threads:
        thread.join()
    table(
        ("", "requests", "failed", "cached tokens"),
        [(name, str(len(tokens)), str(failed[name]), str(sum(tokens))) for name, tokens in asked.items()],
    )
    claims.check("c", "no request fails", f"{failed.total()} failed", held=not failed)
    prompt = make_prompt(fleet.model, 20, seed="after the manager came back")
    before = fleet.held("acme")
    begun = fleet.tenant("acme", 0).ask(prompt)
    blocks = begun.prompt_tokens // BLOCK_TOKENS
    _await_held(fleet, "acme", before + blocks)
    kept = fleet.tenant("acme", 1).ask(prompt).cached_tokens // BLOCK_TOKENS
    claims.check(
        "c", "sessions move again, and nothing was restarted", f"{kept} of {blocks} blocks", held=kept >= 0.95 * blocks
    )


def _engine_is_killed(fleet: Fleet, claims: Claims) -> None:
    chapter("d. Engine A ends")
    prompt = make_prompt(fleet.model, SESSION_BLOCKS, seed="survivor")
    before = fleet.held("acme")
    begun = fleet.tenant("acme", 0).ask(prompt)
    blocks = begun.prompt_tokens // BLOCK_TOKENS
    _await_held(fleet, "acme", before + blocks)
    fleet.end(0)
    found = fleet.tenant("acme", 1).ask(prompt)
    _show({"acme begins, engine A": begun, "acme goes on, engine B": found})
    kept = found.cached_tokens // BLOCK_TOKENS
    claims.check("d", "what it wrote another engine finds", f"{kept} of {blocks}", held=kept >= 0.95 * blocks)


def _show_storages(fleet: Fleet) -> None:
    chapter("The storages")
    table(
        ("storage", "type", "available", "bytes"),
        [
            (each["storage"]["name"], each["storage"]["type"], str(each["available"]), f"{each['used']:,}")
            for each in fleet.manager.ask("ListStorages")["storages"]
        ],
    )


def _await_held(fleet: Fleet, tenant: str, chunks: int) -> None:
    wait_until(lambda: fleet.held(tenant) >= chunks, lambda: f"{chunks} chunks of {tenant}", timeout=_SECONDS, poll=0.1)


def _show(answers: dict[str, Answer]) -> None:
    table(
        ("", "prompt tokens", "cached tokens"),
        [(who, str(answer.prompt_tokens), str(answer.cached_tokens)) for who, answer in answers.items()],
    )
