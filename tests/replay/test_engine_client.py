"""The requests to a user's engine, and the messages if it ends early, answers with nonsense or not at all."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tenantzone_replay.__main__ import main
from tenantzone_replay.engine import engine_client
from tenantzone_replay.engine.engine_client import EngineClient
from tenantzone_replay.traces.load import TraceError

MODELS = b'{"data": [{"id": "tiny", "max_model_len": 4096}]}'
METRICS = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="1001"} 1.0\n'
TOKEN = b'data: {"choices": [{}]}\n\n'
DONE = b"data: [DONE]\n\n"
HANG = b"hang"
"""Sent instead of an engine's answer."""
TOKENS = 3
"""The number of requested tokens."""


async def ask(stream, models, metrics):
    """The client's result from an engine with these answers."""

    def saying(*parts, content_type):
        async def says(request):
            response = web.StreamResponse(headers={"content-type": content_type})
            await response.prepare(request)
            for part in parts:
                if part == HANG:
                    await asyncio.Future()
                await response.write(part)
            return response

        return says

    app = web.Application()
    app.router.add_get("/v1/models", saying(models, content_type="application/json"))
    app.router.add_get("/metrics", saying(metrics, content_type="text/plain; charset=utf-8"))
    app.router.add_post("/v1/completions", saying(*stream, content_type="text/event-stream"))
    async with TestServer(app) as server, EngineClient(str(server.make_url("/v1")), "", "") as engine:
        return await engine.cache_size(), await engine.ask([10, 11], TOKENS)


def heard(*stream, models=MODELS, metrics=METRICS):
    return asyncio.run(ask(stream, models, metrics))


def usage(text):
    return b'data: {"usage": %s}\n\n' % text


@pytest.mark.parametrize(
    "stream",
    [[TOKEN] * TOKENS, [TOKEN, usage(b'{"completion_tokens": 3}')], [TOKEN] * TOKENS + [usage(b"null")]],
    ids=["one by one", "in one burst", "without usage"],
)
def test_an_answer_is_as_long_as_it_was_asked_for(stream):
    size, answer = heard(*stream, DONE)
    assert size == (1000, 16)
    assert answer.first_token_seconds > 0
    assert answer.cached_tokens is None


def test_the_engine_says_what_it_found_in_its_cache():
    reported = b'{"completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}'
    assert heard(TOKEN, usage(reported))[1].cached_tokens == 2


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        pytest.param([TOKEN, DONE], "1 tokens where 3 were asked for", id="few tokens"),
        pytest.param([TOKEN, usage(b'{"completion_tokens": 2}')], "2 tokens where 3 were asked for", id="few in usage"),
        pytest.param([DONE], "0 tokens where 3 were asked for", id="no token"),
        pytest.param([usage(b'{"completion_tokens": 3}')], "0 tokens where 3 were asked for", id="only usage"),
        pytest.param([TOKEN, b'data: {"error": {"message": "it died"}}\n\n'], "with an error: .*it died", id="error"),
        pytest.param([b"data: {garbage\n\n"], "says what is no JSON: '{garbage", id="garbage"),
        pytest.param([b"data: {" * 20_000 + b"\n"], "says what is no JSON", id="nested"),
        pytest.param([b'data: {"\xff"}\n'], "says what is no JSON", id="no UTF-8"),
        pytest.param([TOKEN, usage(b"5")], "expected an object with members, found '5'", id="usage 5"),
        pytest.param(
            [TOKEN, usage(b'{"completion_tokens": "x"}')], "completion_tokens is 'x'", id="usage of no number"
        ),
        pytest.param([*[TOKEN] * 3, usage(b'{"prompt_tokens_details": [1]}')], "expected an object", id="details"),
    ],
)
def test_an_answer_that_can_not_be_measured_is_refused(stream, says):
    with pytest.raises(TraceError, match=rf"^http://127\.0\.0\.1:\d+/v1/completions.*{says}"):
        heard(*stream)


@pytest.mark.parametrize(
    ("models", "says"),
    [
        (b"{}", "names no model"),
        (b'{"data": []}', "names no model"),
        (b'{"data": "x"}', "names no model"),
        (b'{"data": [5]}', "expected an object with members, found '5'"),
        (b"null", "expected an object with members, found 'None'"),
        (b'{"data": [{"id": "tiny", "max_model_len": "many"}]}', "max_model_len is 'many'"),
        (b"<html>", "says what is no JSON"),
        (b"[" * 200_000, "says what is no JSON"),
        (b"\xff", "says what is no JSON"),
    ],
)
def test_models_that_are_nonsense_are_refused(models, says):
    with pytest.raises(TraceError, match=rf"^http://127\.0\.0\.1:\d+/v1/models.*{says}"):
        heard(models=models)


@pytest.mark.parametrize("metrics", [b"\xff\xfe\x00", b"", b"<html>"])
def test_an_engine_need_not_say_how_many_blocks_it_has(metrics):
    assert heard(*[TOKEN] * TOKENS, metrics=metrics)[0] == (0, 0)


@pytest.mark.parametrize("silent", [{"stream": [TOKEN, HANG]}, {"stream": [HANG]}, {"models": HANG}])
def test_an_engine_that_hangs_is_not_waited_for_without_end(monkeypatch, silent):
    monkeypatch.setattr(engine_client, "_PATIENCE", aiohttp.ClientTimeout(total=0.2))
    with pytest.raises(TraceError, match=r"/v1/(completions|models): no answer within 0\.2 s$"):
        heard(*silent.pop("stream", ()), **silent)


@pytest.mark.parametrize("url", ["localhost:8000", "nonsense", "ftp://x", "http://[::1", "http://", "http://a:b"])
def test_a_url_that_is_none_is_refused_where_it_is_given(capsys, url):
    with pytest.raises(SystemExit):
        main(["fit", url, "--out", "engine.json"])
    assert f"argument URL: {url!r} is no URL of an API; it begins with http://" in capsys.readouterr().err
