"""An answer that takes vLLM's tool-call parser too long ends its own request and delays no other."""

import asyncio
import threading
from contextlib import suppress

import httpx
import openai
import psutil
import pytest

from tests.engine.features.asking import zone
from tests.engine.real_engine import API_PORT
from tests.waiting import await_that


def hostile(spaces):
    """An answer that takes the parser eight times as long for twice the spaces."""
    return "<tool_call>" + " " * spaces + "<a></tool_call>"


SLOW = hostile(700)
"""An answer that takes it several hundred milliseconds."""
HOSTILE = hostile(1500)
"""An answer that takes it a multiple of the time allowed for its tokens."""
VALID = "<tool_call>look_up\n<arg_key>what</arg_key>\n<arg_value>a b</arg_value>\n</tool_call>"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}},
    }
]


def asking(text):
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": len(text) + 60,
        "tools": TOOLS,
    }


def said(engine, text, tenant="burst", **fields):
    """The answer to a request that makes the model emit this text."""
    return (
        engine.client(tenant)
        .with_options(timeout=300)
        .chat.completions.create(
            **asking(text),
            extra_body={"structured_outputs": {"choice": [text]}},
            **fields,
        )
    )


def refusals(engine):
    lines = httpx.get(f"http://{engine.address}:{API_PORT}/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("tenantzone_door_refused") and "parsing_budget" in line]
    return sum(float(line.split()[-1]) for line in counted if "_created" not in line)


def parser_processes(engine):
    """The processes in which the API server parses answers."""
    (api_server,) = psutil.Process(engine.pid).children()
    forked = []
    for process in api_server.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.ppid() != api_server.pid and process.cmdline() == api_server.cmdline():
                forked.append(process)
    return forked


@pytest.fixture(scope="module")
def declared(engine):
    engine.declare(zone("acme", reserved=10), zone("burst"))
    return engine


def test_a_tool_call_is_found_in_an_answer_whole_and_streamed(declared):
    (call,) = said(declared, VALID).choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("look_up", '{"what": "a b"}')
    calls = [each for chunk in said(declared, VALID, stream=True) for each in chunk.choices[0].delta.tool_calls or ()]
    assert calls[0].function.name == "look_up"


def test_the_template_is_there_before_a_parser_needs_it(declared):
    (api_server,) = psutil.Process(declared.pid).children()
    (template,) = (each for each in api_server.children() if each.cmdline() == api_server.cmdline())
    # Neither client connections nor other descriptors of the API server: only its own one and the standard ones.
    assert template.num_fds() == 4


def test_an_answer_that_takes_the_parser_too_long_ends_with_an_error_while_others_are_served(declared):
    before, done = refusals(declared), threading.Event()
    healthy, found = [], []

    def watch():
        while not done.is_set():
            healthy.append(httpx.get(f"http://{declared.address}:{API_PORT}/health", timeout=60).status_code)
            if parser_processes(declared) and not found:
                found.extend(said(declared, VALID, "acme").choices[0].message.tool_calls)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(openai.UnprocessableEntityError) as raised:
            said(declared, HOSTILE)
    finally:
        done.set()
        watcher.join()
    assert "CPU time limit" in raised.value.message
    assert HOSTILE[:20] not in str(raised.value.body)
    assert set(healthy) == {200}
    assert [call.function.name for call in found] == ["look_up"]
    assert refusals(declared) == before + 1
    assert "took too long" in declared.log.read_text()
    # When streamed, each piece takes little, and all pieces together take what their tokens allow.
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in said(declared, SLOW, stream=True))
    assert len(streamed) <= len(SLOW)


async def test_a_client_that_hangs_up_leaves_no_process(declared):
    async with httpx.AsyncClient(timeout=300) as client:
        asked = asyncio.create_task(
            client.post(
                f"http://{declared.address}:{API_PORT}/v1/chat/completions",
                headers={"Authorization": "Bearer key-of-burst"},
                json={**asking(SLOW), "structured_outputs": {"choice": [SLOW]}},
            )
        )
        await asyncio.to_thread(await_that, lambda: parser_processes(declared), "the answer is parsed", seconds=300)
        assert not asked.done()
        asked.cancel()
    await asyncio.to_thread(await_that, lambda: not parser_processes(declared), "the process has ended")
