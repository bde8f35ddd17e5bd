"""The attack by logprobs, errors and figures, on a server that leaks through each of them."""

import json
from typing import Any

import pytest

from bench.attacks.__main__ import table_of_channels
from bench.attacks.channels import ChannelFindings, listen
from bench.attacks.probing import Probe
from tenantzone_runtime.frontend.responses.answers import App, Receive, Scope, Send
from tests.frontend.harness import serving

SAMPLES = 2


class Tenants:
    """Two tenants of a server."""

    model = "tiny"

    def __init__(self, url: str) -> None:
        self.url = url

    def headers_of(self, tenant: int) -> dict[str, str]:
        return {"x-tenant": str(tenant)}


def server(*, by_logprobs: bool = False, by_errors: bool = False, by_figures: bool = False) -> App:
    """A server that reveals through some channels which prompts it has seen before."""
    heard: set[str] = set()
    looks = 0

    def answer(path: str, body: dict[str, Any]) -> tuple[int, str]:
        nonlocal looks
        if path == "/metrics":
            looks += 1
            return 200, f"looks {looks}\nprompts {len(heard) if by_figures else 0}\n"
        if not body:
            return 404, ""
        known = body["prompt"] in heard and "cache_salt" not in body
        if body.get("temperature", 0) < 0:
            return 400, "heard of that" if known and by_errors else "too cold: " + body["prompt"]
        if body.get("logprobs") == 1:
            heard.add(body["prompt"])
        return 200, json.dumps({"choices": [{"logprobs": {"token_logprobs": [-1.5 + known * by_logprobs * 1e-6]}}]})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive()).get("body", b"")
        status, text = answer(scope["path"], json.loads(body) if body else {})
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})

    return app


async def leaks_of(app: App) -> ChannelFindings:
    with serving(app) as url:
        return await listen(Tenants(url), Probe(samples=SAMPLES, prompt_words=9, seed=1))


async def test_a_server_that_leaks_nothing():
    reported = await leaks_of(server())
    assert (reported.by_logprobs.auc, reported.error_texts, reported.figures) == (0.5, 0, 0)


async def test_logprobs_that_leak():
    reported = await leaks_of(server(by_logprobs=True))
    assert reported.by_logprobs.auc == pytest.approx(1.0)


async def test_errors_that_leak():
    assert (await leaks_of(server(by_errors=True))).error_texts > 0


async def test_figures_that_leak_but_not_those_that_change_anyway():
    assert (await leaks_of(server(by_figures=True))).figures == 1


async def test_the_table_has_a_line_for_each_side():
    reported = await leaks_of(server(by_figures=True))
    assert [line.split()[0] for line in table_of_channels({"stock": reported, "zones": reported}).splitlines()[1:]] == [
        "stock",
        "zones",
    ]
