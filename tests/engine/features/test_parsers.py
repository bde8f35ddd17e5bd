"""An answer that vLLM's parser of tool calls takes too long for ends its own request, and nobody else waits for it."""

import threading

import httpx
import openai
import pytest

from tests.engine.features.asking import zone
from tests.engine.real_engine import API_PORT

SPACES = 700
HOSTILE = "<tool_call>" + " " * SPACES + "<a></tool_call>"
"""For which the parser takes a second, and eight times as long for twice the spaces."""
VALID = "<tool_call>look_up\n<arg_key>what</arg_key>\n<arg_value>a b</arg_value>\n</tool_call>"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}},
    }
]


def said(engine, text, **fields):
    """The answer to a request that makes the model say a text."""
    return (
        engine.client("burst")
        .with_options(timeout=300)
        .chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=SPACES + 60,
            tools=TOOLS,
            extra_body={"structured_outputs": {"choice": [text]}},
            **fields,
        )
    )


def refusals(engine):
    lines = httpx.get(f"http://{engine.address}:{API_PORT}/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("tenantzone_door_refused") and "parsing_budget" in line]
    return sum(float(line.split()[-1]) for line in counted if "_created" not in line)


@pytest.fixture(scope="module")
def declared(engine):
    engine.declare(zone("acme", reserved=10), zone("burst"))
    return engine


def test_a_tool_call_is_found_in_an_answer_whole_and_streamed(declared):
    (call,) = said(declared, VALID).choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("look_up", '{"what": "a b"}')
    calls = [each for chunk in said(declared, VALID, stream=True) for each in chunk.choices[0].delta.tool_calls or ()]
    assert calls[0].function.name == "look_up"


def test_an_answer_that_takes_the_parser_too_long_ends_with_an_error_while_others_are_served(declared):
    before, done = refusals(declared), threading.Event()
    healthy = []

    def watch():
        while not done.is_set():
            healthy.append(httpx.get(f"http://{declared.address}:{API_PORT}/health", timeout=60).status_code)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(openai.UnprocessableEntityError) as raised:
            said(declared, HOSTILE)
    finally:
        done.set()
        watcher.join()
    assert "processor time" in raised.value.message
    assert HOSTILE[:20] not in str(raised.value.body)
    assert set(healthy) == {200}
    assert refusals(declared) == before + 1
    # Streamed, each piece takes little, and all pieces together what their tokens allow.
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in said(declared, HOSTILE, stream=True))
    assert len(streamed) <= len(HOSTILE)
