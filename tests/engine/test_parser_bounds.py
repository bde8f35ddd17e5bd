"""vLLM's answer parsers run within a budget of each request, and valid answers are parsed as before."""

import asyncio
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import regex
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from hack.harness.answer_parsers import (
    ParserName,
    chat_request,
    deltas,
    make_parser,
    markers_of,
    parse_stream,
    parse_whole,
    registered,
)
from tenantzone_runtime.engine.patches.parsers.interruption import (
    TimeSpentError,
    is_running,
    prepare_interruption,
    run_for,
)
from tenantzone_runtime.engine.patches.parsers.parsed_outputs import ParsedOutputs
from tenantzone_runtime.engine.patches.parsers.parser_bounds import bound_parsers
from tenantzone_runtime.frontend.body.parsing_budget import BASE_SECONDS, EXCESS_SECONDS, SECONDS_OF_TOKEN
from tenantzone_runtime.frontend.request_context import RequestContext
from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Scope, Send
from tenantzone_runtime.frontend.responses.engine_refusal import accept, refusable

PROSE = "The quick brown fox can't jump, 12 times. "
CALL = '{"name": "look_up", "arguments": {"what": "a \\"b\\" <c>", "how": {"deep": [1, 2.5, null]}}}'
VALID = {
    "prose": PROSE,
    "thought": f"<think>{PROSE}</think>{PROSE}",
    "JSON": CALL.replace("arguments", "parameters"),
    "list of JSON": f"[{CALL}, {CALL}]",
    "Hermes": f"{PROSE}<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>",
    "Mistral": f"[TOOL_CALLS] [{CALL}]",
    "Python": '[look_up(what="a", how={"deep": [1]}), look_up(what="b")]',
    "Qwen's XML": "<tool_call>\n<function=look_up>\n<parameter=what>\na b\n</parameter>\n</function>\n</tool_call>",
    "GLM's XML": "<tool_call>look_up\n<arg_key>what</arg_key>\n<arg_value>a b</arg_value>\n</tool_call>",
    "dots": f"<dots_function_call>{CALL}</dots_function_call>",
    "functools": f"functools[{CALL}]",
    "invoke": '<invoke name="look_up"><parameter name="what">a b</parameter></invoke>',
}
STREAMED = {"thought", "Hermes", "GLM's XML", "Python"}
HOSTILE_WHOLE = {
    "dots": "<dots_function_call>" + " " * 1300,
    "poolside_v1": "<tool_call>" + " " * 1300 + "<a></tool_call>",
}
HOSTILE_STREAMS = {
    "xlam": "<tool_call>" * 3000,
}
TICK_SECONDS = 0.02
"""More than a tick of any kernel's clock."""


@pytest.fixture(scope="module", autouse=True)
def _bounded() -> None:
    prepare_interruption()
    bound_parsers()


class RefusalListener:
    """Stands in for the frontend, which learns the outcome of a request."""

    def is_ready(self) -> None:
        pass

    def is_refused(self, refusal: Exception, seconds: float) -> None:
        pass


def output_of(ids: list[int], text: str = "", *, finished: bool = False) -> RequestOutput:
    completion = CompletionOutput(index=0, text=text, token_ids=list(ids), cumulative_logprob=None, logprobs=None)
    return RequestOutput("r", "p", [3], None, [completion], finished)


def note_answer(output: RequestOutput) -> None:
    """Counts a whole answer."""
    assert ParsedOutputs(SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY)).add(output) is output


def answer_whole(name: str, text: str) -> App:
    """An application whose parser reads a whole answer, as vLLM's routes do."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        note_answer(output_of([0] * len(text)))
        body = repr(parse_whole(make_parser(ParserName("tool", name)), text, chat_request())).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return app


def answer_in_stream(name: str, pieces: list[tuple[str, list[int]]], results: list[Any]) -> App:
    """An application that streams a parser's results for the pieces of an answer, and appends them to `results`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        made, request = make_parser(ParserName("tool", name)), chat_request(stream=True)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: begun\n\n", "more_body": True})
        await accept()
        outputs = ParsedOutputs(SamplingParams(output_kind=RequestOutputKind.DELTA))
        for number, (delta, ids) in enumerate(pieces, start=1):
            part = outputs.add(output_of(ids, delta, finished=number == len(pieces)))
            if part is None:
                continue
            (completion,) = part.outputs
            prompt = None if results else [3]
            results.append(
                made.parse_delta(completion.text, completion.token_ids, request, prompt, finished=part.finished)
            )
            await send({"type": "http.response.body", "body": b"data: %r\n\n" % results[-1], "more_body": True})

    return app


def sent_by(app: App, path: str = "/v1/chat/completions") -> tuple[list[Message], RequestContext, float]:
    """What an application behind the frontend sends to the client, and the processor time that it took."""
    context, sent = RequestContext(), []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is received")

    begin = time.thread_time()
    asyncio.run(
        refusable(context.carried_through(app), RefusalListener())({"type": "http", "path": path}, receive, send)
    )
    return sent, context, time.thread_time() - begin


@pytest.mark.parametrize("name", HOSTILE_WHOLE)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_whole_answer_that_takes_too_long_ends_with_the_api_s_error(name: str, path: str, caplog: Any):
    make_parser(ParserName("tool", name))
    with caplog.at_level(logging.WARNING, "tenantzone_runtime"):
        (start, body), _, _ = sent_by(answer_whole(name, HOSTILE_WHOLE[name]), path)
    assert start["status"] == 422
    error = json.loads(body["body"])
    assert error["error"]["type"] == ("UnprocessableEntityError" if "chat" in path else "invalid_request_error")
    assert "    " not in body["body"].decode(), "nothing of the answer"
    (line,) = [record.getMessage() for record in caplog.records if "too long" in record.getMessage()]
    assert "422" in line


@pytest.mark.parametrize(
    ("name", "begin", "end", "repetitions"),
    [
        ("llama3_json", '{"name": "look_up", "parameters": {"what": "', '"}}', 240),
        ("pythonic", '[look_up(what="', '")]', 480),
    ],
)
def test_a_long_tool_call_is_streamed_whole(name: str, begin: str, end: str, repetitions: int):
    """These parsers read the whole call again for each piece, which takes longer and longer."""
    pieces = [(begin, [5]), (PROSE * repetitions, [5] * 100), *deltas(PROSE * 7 + end, [])]
    results: list[Any] = []
    sent, context, _ = sent_by(answer_in_stream(name, pieces, results))
    assert b"UnprocessableEntityError" not in sent[-1]["body"]
    arguments = [
        call.function.arguments or "" for delta in results if delta for call in delta.tool_calls if call.function
    ]
    assert json.loads("".join(arguments)) == {"what": PROSE * (repetitions + 7)}
    assert context.parsing.tokens == 101 + len(PROSE * 7 + end)


@pytest.mark.parametrize("name", HOSTILE_STREAMS)
def test_a_stream_that_takes_too_long_ends_with_an_error_event(name: str):
    text, markers = HOSTILE_STREAMS[name], markers_of(ParserName("tool", name))
    # Most of it as one piece, so that the test is short.
    pieces = [(text, [5] * 100), *deltas(text[: len(text) // 4], markers)]
    sent, context, _ = sent_by(answer_in_stream(name, pieces, []))
    *_, last = sent
    assert last["body"].endswith(b"data: [DONE]\n\n")
    assert json.loads(last["body"].split(b"\n")[0].removeprefix(b"data: "))["error"]["code"] == 422
    budget = context.parsing
    assert budget._spent <= BASE_SECONDS + SECONDS_OF_TOKEN * budget.tokens + EXCESS_SECONDS + TICK_SECONDS


def test_a_request_that_came_past_the_frontend_is_parsed_as_by_stock_vllm():
    text = HOSTILE_WHOLE["dots"][:500]
    _, content, calls = parse_whole(make_parser(ParserName("tool", "dots")), text, chat_request())
    assert (content, calls) == (text, None)


def comparable(result: Any) -> Any:
    """A parser's results without the ids that it draws at random."""
    return regex.sub(r"\bid='[^']*'|[0-9a-f]{16,}|'[A-Za-z0-9]{9}'", "id", repr(result))


def in_turn(ids: list[int]) -> None:
    note_answer(output_of(ids))


async def test_outputs_are_joined_while_the_budget_is_behind_and_none_is_lost():
    def joined(params: SamplingParams) -> list[RequestOutput]:
        outputs, found = ParsedOutputs(params), []
        for number in range(200):
            part = outputs.add(output_of([number], f"{number} ", finished=number == 199))
            if part is not None:
                found.append(part)
                context.parsing.spend(0.004, 0, 0)
        return found

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.extend(joined(SamplingParams(output_kind=RequestOutputKind.DELTA)))
        spent = context.parsing._spent
        assert spent < BASE_SECONDS + SECONDS_OF_TOKEN * context.parsing.tokens
        assert len(joined(SamplingParams(output_kind=RequestOutputKind.CUMULATIVE))) == 200

    context, found = RequestContext(), []
    await context.carried_through(app)({}, None, None)
    assert 40 < len(found) < 100
    assert [token for part in found for token in part.outputs[0].token_ids] == list(range(200))
    assert "".join(part.outputs[0].text for part in found) == "".join(f"{number} " for number in range(200))
    assert [part.finished for part in found] == [False] * (len(found) - 1) + [True]
    past_the_frontend = ParsedOutputs(SamplingParams(output_kind=RequestOutputKind.DELTA))
    output = output_of([1])
    assert past_the_frontend.add(output) is output


def outcome(call: Callable[[], Any]) -> str:
    try:
        return comparable(call())
    except TimeSpentError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def one_of_each() -> Iterator[ParserName]:
    """Each parser once, under any of its names."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    seen = set()
    for parser in registered():
        manager = ToolParserManager if parser.kind == "tool" else ReasoningParserManager
        place = (parser.kind, manager.lazy_parsers.get(parser.name, parser.name))
        if place not in seen:
            seen.add(place)
            yield parser


@pytest.mark.parametrize("parser", list(one_of_each()), ids=lambda parser: f"{parser.kind} {parser.name}")
def test_valid_answers_are_read_as_by_stock_vllm(parser: ParserName):
    try:
        make_parser(parser)
    except (TypeError, ImportError) as error:
        pytest.skip(str(error))
    markers = markers_of(parser)

    def results() -> list[str]:
        found = []
        for form, text in VALID.items():
            note_answer(output_of([0] * len(text)))
            found.append(outcome(lambda: parse_whole(make_parser(parser), text, chat_request())))  # noqa: B023
            if form not in STREAMED:
                continue
            pieces = list(deltas(text, markers))
            found.append(outcome(lambda: parse_stream(make_parser(parser), pieces, chat_request(stream=True), in_turn)))  # noqa: B023
        return found

    async def behind_the_frontend(scope: Scope, receive: Receive, send: Send) -> None:
        bounded.extend(results())

    bounded: list[str] = []
    sent, context, _ = sent_by(behind_the_frontend)
    assert sent == []
    assert context.parsing._spent > 0
    assert bounded == results()


def test_a_loop_in_python_and_a_match_of_regex_are_interrupted_and_what_follows_is_not():
    def loop() -> None:
        while True:
            pass

    slow = regex.compile(r"<t>([^<]+?)\s*\n?\s*x</t>")
    for call in (loop, lambda: slow.findall("<t>" + " " * 20_000)):
        begin = time.thread_time()
        with pytest.raises(TimeSpentError):
            run_for(0.01, call)
        assert time.thread_time() - begin < 0.01 + 2 * TICK_SECONDS
        assert not is_running()
    assert run_for(1.0, lambda: sum(range(200_000))) == 19_999_900_000


def test_what_parsers_catch_does_not_catch_the_interrupt():
    def swallow() -> str:
        while True:
            try:
                regex.findall(r"<t>([^<]+?)\s*\n?\s*x</t>", "<t>" + " " * 20_000)
            except Exception:
                return "the raw text"

    with pytest.raises(TimeSpentError):
        run_for(0.01, swallow)


def test_a_lock_of_logging_is_never_left_held():
    handler = logging.StreamHandler(io.StringIO())
    log = logging.Logger("tests.parser_bounds")
    log.addHandler(handler)

    def write() -> None:
        while True:
            sum(range(5000))
            log.error("once more")

    for _ in range(20):
        with pytest.raises(TimeSpentError):
            run_for(0.002, write)
    free = []
    thread = threading.Thread(target=lambda: free.append(handler.lock.acquire(timeout=10)))
    thread.start()
    thread.join()
    assert free == [True]


def test_no_call_begins_without_time_or_within_another():
    with pytest.raises(TimeSpentError):
        run_for(0.0, lambda: None)
    with pytest.raises(RuntimeError, match="within another"):
        run_for(1.0, lambda: run_for(1.0, lambda: None))
