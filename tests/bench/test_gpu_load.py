"""Plans of load, and the processes that send them to a real HTTP server."""

import asyncio
import json
import os
from collections import Counter

import psutil
import pytest
from aiohttp import web

from bench.gpu import worker
from bench.gpu.load import LoadError, Workers
from bench.gpu.plan import Caller, Plan, Prompts, Stream, poisson, split

PROMPTS = Prompts(vocabulary=1000, prefix=8, own=4, seed="a")
CALLER = Caller({"Authorization": "Bearer key"}, {"cache_salt": "salt"})


class TestPrompts:
    def test_they_share_the_prefix_and_nothing_else(self):
        one, other = PROMPTS.prompt(0), PROMPTS.prompt(1)
        assert len(one) == len(other) == PROMPTS.tokens == 12
        assert one[:8] == other[:8]
        assert one[8:] != other[8:]

    def test_the_same_seed_and_number_give_the_same_prompt(self):
        assert PROMPTS.prompt(3) == Prompts(1000, 8, 4, "a").prompt(3)
        assert PROMPTS.prompt(3) != Prompts(1000, 8, 4, "b").prompt(3)


class TestSplit:
    def test_the_parts_have_all_requests_with_the_same_prompts(self):
        stream = Stream("s", "http://x", (CALLER,), PROMPTS, 4, arrivals=(0.0, 0.1, 0.2, 0.3, 0.4), first=7)
        parts = split(Plan((stream,), (0, 1)), 2)
        requests = [
            (arrival, part.first + number * part.step)
            for plan in parts
            for part in plan.streams
            for number, arrival in enumerate(part.arrivals)
        ]
        assert sorted(requests) == [(0.0, 7), (0.1, 8), (0.2, 9), (0.3, 10), (0.4, 11)]

    def test_concurrent_requests_are_divided_and_never_have_the_same_prompt(self):
        stream = Stream("s", "http://x", (CALLER,), PROMPTS, 4, at_once=5)
        parts = [plan.streams[0] for plan in split(Plan((stream,), (0, 1)), 3)]
        assert [part.at_once for part in parts] == [2, 2, 1]
        numbers = Counter(part.first + turn * part.step for part in parts for turn in range(10))
        assert set(numbers.values()) == {1}

    def test_a_process_without_requests_gets_no_part(self):
        stream = Stream("s", "http://x", (CALLER,), PROMPTS, 4, at_once=2)
        assert len(split(Plan((stream,), (0, 1)), 3)) == 2


class TestPoisson:
    def test_arrivals_are_in_order_within_the_interval_and_about_as_many_as_the_rate_says(self):
        times = poisson(50.0, 2.0, 12.0, "seed")
        assert list(times) == sorted(times)
        assert 2.0 <= times[0] <= times[-1] < 12.0
        assert len(times) == pytest.approx(500, rel=0.2)

    def test_they_depend_on_the_seed_only(self):
        assert poisson(5.0, 0.0, 9.0, "a") == poisson(5.0, 0.0, 9.0, "a") != poisson(5.0, 0.0, 9.0, "b")


class Server:
    """Answers like vLLM's streaming completions, with an empty event before the first token."""

    def __init__(self):
        self.bodies = []
        self.keys = Counter()
        self.given_up = asyncio.Event()
        self.status = 200
        self.missing = 0
        """The number of tokens by which answers are too short."""
        self.silent = False

    async def answer(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.keys[request.headers["Authorization"]] += 1
        if self.status != 200:
            return web.Response(status=self.status, text="no room")
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            if self.silent:
                await asyncio.Event().wait()
            for made in range(body["max_tokens"] + 1 - self.missing):
                usage = {"completion_tokens": made, "prompt_tokens_details": {"cached_tokens": 8}}
                await response.write(f"data: {json.dumps({'choices': [{'text': ''}], 'usage': usage})}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return response


@pytest.fixture
async def server():
    handler = Server()
    application = web.Application()
    application.router.add_post("/v1/completions", handler.answer)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    handler.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield handler
    await runner.cleanup()


@pytest.fixture
async def workers():
    async with Workers(most=2) as workers:
        yield workers


class TestWorkers:
    async def test_they_send_each_request_and_time_its_tokens(self, server, workers):
        stream = Stream("quiet", server.url, (CALLER,), PROMPTS, 3, arrivals=(0.0,) * 40)
        loaded = await workers.run(Plan((stream,), (0.0, 0.0)))
        quiet = loaded.streams["quiet"]
        assert (quiet.requests, quiet.failed, quiet.errors) == (40, 0, [])
        assert len(quiet.first_token_seconds) == 40
        assert len(quiet.token_seconds) == 40 * 2
        assert (quiet.prompt_tokens, quiet.cached_tokens) == (40 * 12, 40 * 8)
        assert sorted(body["prompt"] for body in server.bodies) == sorted(map(PROMPTS.prompt, range(40)))
        assert {body["cache_salt"] for body in server.bodies} == {"salt"}
        assert server.keys == {"Bearer key": 40}
        assert loaded.client_cpu_share > 0

    async def test_concurrent_requests_go_on_until_the_window_has_passed(self, server, workers):
        stream = Stream("flood", server.url, (CALLER,), PROMPTS, 2, at_once=3)
        loaded = await workers.run(Plan((stream,), (0.0, 1.0)))
        flood = loaded.streams["flood"]
        assert flood.requests > 3
        assert flood.failed == 0
        assert flood.first_token_seconds == []
        assert flood.window_generated >= 2 * flood.window_requests > 0
        assert flood.window_tokens >= 14 * flood.window_requests
        assert loaded.window_seconds == 1.0

    async def test_outside_the_window_nothing_counts(self, server, workers):
        stream = Stream("quiet", server.url, (CALLER,), PROMPTS, 2, arrivals=(0.0,))
        quiet = (await workers.run(Plan((stream,), (-2.0, -1.0)))).streams["quiet"]
        assert (quiet.requests, quiet.window_tokens, quiet.window_generated, quiet.window_requests) == (1, 0, 0, 0)

    async def test_concurrent_requests_that_never_end_are_given_up(self, server, workers):
        server.silent = True
        stream = Stream("flood", server.url, (CALLER,), PROMPTS, 2, at_once=1)
        flood = (await workers.run(Plan((stream,), (0.0, 0.2)))).streams["flood"]
        await server.given_up.wait()
        assert flood.requests == 0

    @pytest.mark.parametrize(
        ("status", "missing", "error"), [(429, 0, "status 429: no room"), (200, 1, "2 of 3 tokens")]
    )
    async def test_refused_and_short_answers_have_failed(self, server, workers, status, missing, error):
        server.status, server.missing = status, missing
        stream = Stream("quiet", server.url, (CALLER,), PROMPTS, 3, arrivals=(0.0,) * 7)
        quiet = (await workers.run(Plan((stream,), (0.0, 0.0)))).streams["quiet"]
        assert (quiet.requests, quiet.failed) == (7, 7)
        assert quiet.errors == [error] * 3
        assert quiet.first_token_seconds == []

    def test_an_idle_connection_is_not_used_again_when_the_engine_may_close_it(self):
        from vllm import envs

        assert worker.KEPT_CONNECTION_SECONDS < envs.VLLM_HTTP_TIMEOUT_KEEP_ALIVE

    async def test_ctrl_c_at_a_terminal_does_not_reach_the_processes(self, server, workers):
        stream = Stream("quiet", server.url, (CALLER,), PROMPTS, 2, arrivals=(0.0,))
        # Other tests of this process may have left child processes, such as multiprocessing's resource tracker.
        before = psutil.Process().children()
        await workers.run(Plan((stream,), (0.0, 0.0)))
        (process,) = set(psutil.Process().children()) - set(before)
        assert os.getpgid(process.pid) != os.getpgid(0)

    async def test_after_a_plan_that_was_cancelled_the_next_one_runs(self, server, workers):
        server.silent = True
        stream = Stream("quiet", server.url, (CALLER,), PROMPTS, 1, arrivals=(0.0,))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await workers.run(Plan((stream,), (0.0, 0.0)))
        server.silent = False
        assert (await workers.run(Plan((stream,), (0.0, 0.0)))).streams["quiet"].failed == 0

    async def test_a_process_that_ends_fails_the_plan(self, workers):
        stream = Stream("quiet", "http://127.0.0.1:9", ({"no": "caller"},), PROMPTS, 1, arrivals=(0.0,))
        with pytest.raises(LoadError, match="ended with code 1"):
            await workers.run(Plan((stream,), (0.0, 0.0)))
