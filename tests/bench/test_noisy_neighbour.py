"""The noisy-neighbour bench times the first token that is not empty, and adds up what it claims to."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from bench.noisy_neighbour.asking import AskingError, Flood, Shape, Tenant, ask_quietly
from bench.noisy_neighbour.figures import Figure, Phase, Seed, figure, table
from bench.noisy_neighbour.plot import draw, draw_frontier
from bench.noisy_neighbour.results import Results, ResultsError

SHAPE = Shape(requests=3, rate=1000.0, answer_tokens=2, flood_tokens=10, flood_answer_tokens=3)


@asynccontextmanager
async def served(answer):
    """A server whose completions ``answer`` writes. Gives a session and one of its tenants."""
    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield session, Tenant(f"http://127.0.0.1:{runner.addresses[0][1]}", {"X-Who": "me"}, {"model": "m"})
    finally:
        await runner.cleanup()


async def stream(request, pieces):
    """Streams these pieces; waits for an event among them before the next piece."""
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in pieces:
        if isinstance(piece, asyncio.Event):
            await piece.wait()
        else:
            await response.write(f"data: {json.dumps({'choices': [{'text': piece}]})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


async def test_the_quiet_tenants_prompts_share_a_prefix_and_nothing_else():
    asked = []

    async def answer(request):
        asked.append((request.headers["X-Who"], await request.json()))
        return await stream(request, ["", "a", "b"])

    async with served(answer) as (session, tenant):
        answers = await ask_quietly(session, tenant, SHAPE, seed=1)
    prompts = [body["prompt"].split() for _, body in asked]
    assert {len(prompt) for prompt in prompts} == {128 + 64}
    assert len({tuple(prompt[:128]) for prompt in prompts}) == 1
    assert len({tuple(prompt[128:]) for prompt in prompts}) == 3
    assert {(who, body["model"], body["max_tokens"]) for who, body in asked} == {("me", "m", 2)}
    assert [len(each.tokens_at) for each in answers] == [2, 2, 2], "an empty piece is no token"


async def test_an_answer_that_is_too_short_ends_the_bench():
    async def answer(request):
        return await stream(request, ["a"])

    async with served(answer) as (session, tenant):
        with pytest.raises(AskingError, match="1 of 2 tokens"):
            await ask_quietly(session, tenant, SHAPE, seed=1)


async def test_who_is_refused_for_now_asks_again_and_has_waited_since_the_first_time():
    count = 0

    async def answer(request):
        nonlocal count
        count += 1
        if count == 1:
            return web.Response(status=503, headers={"Retry-After": "0.2"})
        return await stream(request, ["a", "b"])

    async with served(answer) as (session, tenant):
        answers = await ask_quietly(session, tenant, SHAPE, seed=1)
    assert [each.refused for each in answers] == [1, 0, 0]
    assert answers[0].first_token_seconds >= 0.2


async def test_a_refusal_within_the_stream_is_one():
    count = 0

    async def answer(request):
        nonlocal count
        count += 1
        if count == 1:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'data: {"error": {"message": "full", "code": 503}}\n\ndata: [DONE]\n\n')
            return response
        return await stream(request, ["a", "b"])

    async with served(answer) as (session, tenant):
        answers = await ask_quietly(session, tenant, SHAPE, seed=1)
    assert [each.refused for each in answers] == [1, 0, 0]


async def test_a_refusal_for_good_ends_the_bench():
    async def answer(request):
        return web.Response(status=401)

    async with served(answer) as (session, tenant):
        with pytest.raises(AskingError, match="status 401"):
            await ask_quietly(session, tenant, SHAPE, seed=1)


async def test_the_flood_keeps_a_number_of_requests_in_flight_and_counts_a_prompt_with_its_first_token():
    under_way, most, wait = 0, 0, asyncio.Event()

    async def answer(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        return await stream(request, ["", "a", wait])

    async with served(answer) as (session, tenant):
        flood = Flood(session, tenant, SHAPE, at_once=4, seed=1)
        async with flood.entered():
            while flood.tokens < 4 * 11:
                flood.check()
                await asyncio.sleep(0)
        assert (most, flood.answers, flood.tokens) == (4, 0, 44)
        wait.set()


async def test_a_refused_request_of_the_flood_is_counted_and_sent_again():
    count = 0

    async def answer(request):
        nonlocal count
        count += 1
        if count == 1:
            return web.Response(status=429, headers={"Retry-After": "0"})
        return await stream(request, ["a", "b", "c"])

    async with served(answer) as (session, tenant):
        flood = Flood(session, tenant, SHAPE, at_once=1, seed=1)
        async with flood.entered():
            while flood.answers < 2:
                flood.check()
                await asyncio.sleep(0)
        assert flood.refused == 1
        assert flood.tokens >= 2 * 13


def test_a_figure_is_the_mean_over_seeds_with_students_margin():
    assert figure([5.0]) == Figure(5.0, 0.0)
    three = figure([1.0, 2.0, 3.0])
    assert three.mean == 2.0
    assert three.margin == pytest.approx(2.484, abs=0.001), "4.303 / sqrt(3), from Student's table for two degrees"


def seed(first_token, tokens):
    return Seed(Phase((0.01,), (0.002,)), Phase((first_token,), (0.004,)), tokens, 2 * tokens, 0)


def test_each_seed_of_an_arm_is_compared_with_the_same_seed_of_the_first():
    text = table({"stock": [seed(1.0, 100.0), seed(1.0, 200.0)], "zones": [seed(0.02, 90.0), seed(0.02, 180.0)]})
    heads, _, stock, zones = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    assert dict(zip(heads, zones, strict=True)) == {
        "arm": "zones",
        "solo TTFT p99, ms": "10",
        "flood TTFT p50, ms": "20",
        "flood TTFT p99, ms": "20",
        "p99 to solo": "2",
        "solo between tokens p99, ms": "2",
        "flood between tokens p50, ms": "4",
        "flood between tokens p99, ms": "4",
        "flood tokens/s, to the first arm": "0.9",
        "flood alone, to the first arm": "0.9",
        "refused": "0",
        "flood refused": "0",
    }
    assert stock[heads.index("p99 to solo")] == "100"


def test_the_plot_has_each_arm_and_is_the_same_for_the_same_figures(tmp_path):
    arms = {"stock": [seed(1.0, 1.0), seed(2.0, 1.0)], "zones": [seed(0.02, 1.0)]}
    draw(arms, tmp_path / "one.svg")
    draw(arms, tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    draw({**arms, "zones": [seed(0.03, 1.0)]}, tmp_path / "other.svg")
    assert (tmp_path / "other.svg").read_bytes() != (tmp_path / "one.svg").read_bytes()


def test_a_run_that_was_cut_short_goes_on_where_it_stopped(tmp_path):
    path, settings = tmp_path / "results.json", {"rate": 2.0, "flags": []}
    Results(path, settings).add("stock", 1, seed(1.0, 100.0))
    again = Results(path, settings)
    assert (again.has("stock", 1), again.has("stock", 2), again.has("zones", 1)) == (True, False, False)
    again.add("stock", 2, seed(2.0, 100.0))
    assert Results(path, settings).of(["stock"], 2) == {"stock": [seed(1.0, 100.0), seed(2.0, 100.0)]}


def test_results_of_another_load_are_not_gone_on_with(tmp_path):
    path = tmp_path / "results.json"
    Results(path, {"rate": 2.0}).add("stock", 1, seed(1.0, 100.0))
    with pytest.raises(ResultsError, match="name another file"):
        Results(path, {"rate": 3.0})


def test_the_frontier_has_each_target(tmp_path):
    arms = {"stock": [seed(1.0, 100.0)] * 2, "50": [seed(0.05, 80.0)] * 2, "100": [seed(0.1, 90.0)] * 2}
    draw_frontier(arms, {"100": 0.1, "50": 0.05}, tmp_path / "both.svg")
    draw_frontier(arms, {"100": 0.1}, tmp_path / "one.svg")
    assert (tmp_path / "both.svg").read_bytes() != (tmp_path / "one.svg").read_bytes()
