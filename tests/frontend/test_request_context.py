"""A request's seal is passed to the tasks that serve it, and to no other request's."""

import asyncio
import json

import pytest

from tenantzone_runtime.frontend.request_context import current_seal
from tenantzone_runtime.seal import SEAL_ARGUMENT, unseal
from tests.frontend.harness import PROMPT, SEAL_KEY, call, frontend
from tests.runtime.folders import project

TEXT = {"input": "hello"}


async def show_seals(scope, receive, send):
    """Answers with the body, and the seals of two tasks that are started within the request's own."""
    body = (await receive())["body"].decode()

    async def look():
        await asyncio.sleep(0)
        return current_seal()

    seen = await asyncio.gather(asyncio.create_task(look()), asyncio.create_task(look()))
    answer = json.dumps({"body": body, "seals": seen}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": answer})


@pytest.mark.parametrize(("path", "asked"), [("/v1/embeddings", TEXT), ("/v1/completions", PROMPT)])
@pytest.mark.shows(
    "beam search (`use_beam_search`)", "embeddings, classification, pooling (`--runner pooling`, `--convert`)"
)
def test_each_task_of_a_request_bears_the_seal_that_fits_its_salt(folder, path, asked):
    answer = call(frontend(folder, show_seals), path=path, body=asked, key="acme-key").json()
    body, (first, second) = json.loads(answer["body"]), answer["seals"]
    assert first == second
    assert unseal(SEAL_KEY, first, body["cache_salt"]).tenant == "acme"
    assert body.get("vllm_xargs", {}).get(SEAL_ARGUMENT, first) == first


def test_a_body_without_a_field_for_it_gets_none(folder):
    answer = call(frontend(folder, show_seals), path="/pooling", body=TEXT, key="acme-key").json()
    assert set(json.loads(answer["body"])) == {"input", "cache_salt"}


def test_requests_side_by_side_bear_their_own(folder):
    meeting = asyncio.Barrier(2)

    async def meet(scope, receive, send):
        await meeting.wait()
        await show_seals(scope, receive, send)

    app = frontend(folder, meet)

    async def ask(tenant):
        answer = bytearray()
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/embeddings",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {tenant}-key".encode()), (b"content-type", b"application/json")],
        }
        messages = [{"type": "http.request", "body": json.dumps(TEXT).encode(), "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            return await asyncio.Future()

        async def send(message):
            answer.extend(message.get("body", b""))

        await app(scope, receive, send)
        return json.loads(answer)

    async def both():
        return await asyncio.gather(ask("acme"), ask("burst"))

    for tenant, answer in zip(("acme", "burst"), asyncio.run(both()), strict=True):
        salt = json.loads(answer["body"])["cache_salt"]
        assert [unseal(SEAL_KEY, seal, salt).tenant for seal in answer["seals"]] == [tenant] * 2


def test_nothing_is_borne_outside_of_a_request(folder):
    call(frontend(folder, show_seals), path="/v1/embeddings", body=TEXT, key="acme-key")
    assert current_seal() == ""


def test_without_a_config_nothing_is_borne(folder):
    project(folder / "config", {})
    answer = call(frontend(folder, show_seals), path="/v1/embeddings", body=TEXT, key="acme-key").json()
    assert answer["seals"] == ["", ""]
