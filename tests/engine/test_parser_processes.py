"""Slow parsing runs in another process: the event loop serves others, and the answer is the same."""

import asyncio
import json
import os
import signal
import time
from functools import partial
from types import SimpleNamespace

import psutil
import pytest
from vllm.parser.abstract_parser import Parser
from vllm.sampling_params import RequestOutputKind, SamplingParams

from hack.harness.answer_parsers import ParserName, chat_request, make_parser, parse_whole, tokenizer
from tenantzone_runtime.engine.patches.parsers import parser_bounds, parser_processes
from tenantzone_runtime.engine.patches.parsers.parsed_outputs import ParsedOutputs
from tenantzone_runtime.engine.patches.parsers.parser_bounds import bound_parsers
from tenantzone_runtime.engine.patches.parsers.parser_processes import (
    MOST_OF_TENANT,
    ParserProcess,
    ParserProcesses,
    UnmovableError,
)
from tenantzone_runtime.engine.patches.parsers.parser_worker import Template
from tenantzone_runtime.engine.patches.parsers.suspension import make_suspendable
from tenantzone_runtime.engine.versions import generation_error
from tenantzone_runtime.frontend.request_context import RequestContext, current_context
from tenantzone_runtime.frontend.responses.answers import Refusal
from tests.engine.test_parser_bounds import HOSTILE_WHOLE, PROSE, output_of
from tests.processes import descendants
from tests.waiting import await_that

API_SERVER = os.getpid()
LONG = "0.3"
"""Seconds: more than a turn of the event loop, and more than the kernel's timer is late on a busy machine."""
TOKENS = [7] * 1000
"""Tokens whose budget exceeds that time."""


def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(5000))


class SlowParser(Parser):
    """Takes the seconds that an answer names, and reports which process read the answer's pieces."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.read = []

    def parse(self, model_output, request, enable_auto_tools=False, model_output_token_ids=()):
        if model_output == "endless" and os.getpid() != API_SERVER:
            sum(range(10**12))  # In C, which no signal interrupts.
        if model_output == "wrong":
            busy(float(LONG))
            raise KeyError(model_output)
        busy(float(model_output) if model_output != "endless" else 1)
        return os.getpid() == API_SERVER, model_output, list(model_output_token_ids)

    def parse_delta(self, delta_text, delta_token_ids, request, prompt_token_ids=None, *, finished):
        self.read.append((delta_text, list(delta_token_ids), prompt_token_ids, finished))
        busy(float(delta_text))
        return os.getpid() == API_SERVER, list(self.read)


class Serving:
    """Calls parsers as vLLM's routes do."""

    async def whole(self, made, text, request=None, ids=TOKENS):
        outputs = ParsedOutputs(SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY))
        outputs.add(output_of(ids))
        await asyncio.sleep(0)
        return made.parse(text, request or chat_request(), True, model_output_token_ids=ids)

    async def stream(self, made, pieces):
        outputs = ParsedOutputs(SamplingParams(output_kind=RequestOutputKind.DELTA))
        prompt, request = [3], chat_request(stream=True)
        for number, (text, ids) in enumerate(pieces, start=1):
            await asyncio.sleep(0)
            part = outputs.add(output_of(ids, text, finished=number == len(pieces)))
            if part is not None:
                (completion,) = part.outputs
                yield made.parse_delta(
                    delta_text=completion.text,
                    delta_token_ids=completion.token_ids,
                    request=request,
                    prompt_token_ids=prompt,
                    finished=part.finished,
                )


make_suspendable(Serving, "whole")
make_suspendable(Serving, "stream")


@pytest.fixture(scope="module", autouse=True)
def _bounded():
    bound_parsers()


@pytest.fixture
def refusals(monkeypatch):
    """The refusals reported to the frontend."""
    given = []
    monkeypatch.setattr(parser_bounds, "refuse_answer", given.append)
    return given


async def behind_the_frontend(call, tenant="acme"):
    """Returns the result of a call for a tenant's request, and what was held for the request."""
    found, held = [], []
    context = RequestContext(tenant=tenant)

    async def app(scope, receive, send):
        found.append(await call())
        held.extend(context.held)

    await context.carried_through(app)({"type": "http"}, None, None)
    return found[0], held


async def until(condition):
    await asyncio.to_thread(await_that, condition, "the condition still fails")


def slow_parser():
    return SlowParser(tokenizer())


async def say(text, tenant="acme", **others):
    return await behind_the_frontend(lambda: Serving().whole(slow_parser(), text, **others), tenant)


async def everything(made, pieces):
    return [each async for each in Serving().stream(made(), pieces)]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_what_takes_no_longer_than_a_turn_stays_and_what_does_goes_on_elsewhere():
    assert (await say("0"))[0] == (True, "0", TOKENS)
    found, held = await say(LONG)
    assert found == (False, LONG, TOKENS)
    (process,) = held
    assert found == (False, LONG, TOKENS)
    assert isinstance(process, ParserProcess)
    await until(lambda: not is_running(process.pid))


async def test_a_parsers_exception_comes_back_from_elsewhere():
    with pytest.raises(KeyError, match="wrong"):
        await say("wrong")


@pytest.mark.parametrize("name", HOSTILE_WHOLE)
async def test_others_are_served_while_a_hostile_answer_is_parsed(name, refusals):
    made = partial(make_parser, ParserName("tool", name))
    made()
    contexts = []

    async def call():
        contexts.append(current_context())
        with pytest.raises(generation_error()):
            await Serving().whole(made(), HOSTILE_WHOLE[name])

    begin = time.thread_time()
    await behind_the_frontend(call)
    on_the_event_loop = time.thread_time() - begin
    (refusal,) = refusals
    assert isinstance(refusal, Refusal)
    assert refusal.status == 422
    assert contexts[0].parsing._spent > 0.1
    assert on_the_event_loop < 0.1


async def test_a_stream_goes_on_elsewhere_with_all_that_was_read():
    pieces = [("0", [1]), ("0", [2, 2]), ("0.005", [3] * 99), ("0", [4]), (LONG, [5] * 999), ("0", [6] * 999)]
    found, _ = await behind_the_frontend(lambda: everything(slow_parser, pieces))
    assert [is_here for is_here, _ in found[:2] + found[3:]] == [True] * 2 + [False] * 3
    _, read = found[-1]
    assert read == [(text, ids, [3], number == 5) for number, (text, ids) in enumerate(pieces)]


async def test_a_long_tool_call_of_a_slow_parser_is_streamed_whole():
    text = json.dumps({"name": "look_up", "parameters": {"what": PROSE * 700}})
    pieces = [(text[at : at + 256], [5] * 64) for at in range(0, len(text), 256)]
    results, _ = await behind_the_frontend(
        lambda: everything(partial(make_parser, ParserName("tool", "llama3_json")), pieces)
    )
    arguments = [
        call.function.arguments or "" for delta in results if delta for call in delta.tool_calls if call.function
    ]
    assert json.loads("".join(arguments)) == {"what": PROSE * 700}


async def test_what_nothing_interrupts_is_killed_and_costs_no_other_request_anything(refusals):
    ended = asyncio.create_task(say("endless"))
    others = await asyncio.gather(*(say(LONG) for _ in range(3)))
    assert [found for found, _ in others] == [(False, LONG, TOKENS)] * 3
    with pytest.raises(generation_error()):
        await ended
    assert [refusal.status for refusal in refusals] == [422]


async def test_a_killed_process_ends_its_request_alone_and_a_killed_template_none(refusals, caplog):
    pids = []

    async def call():
        made = slow_parser()
        first = await Serving().whole(made, LONG)
        pids.append(current_context().held[0].pid)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(generation_error()):
            await Serving().whole(made, LONG)
        return first

    found, _ = await behind_the_frontend(call)
    assert found == (False, LONG, TOKENS)
    assert [refusal.status for refusal in refusals] == [422]
    # The template is the parent of the processes.
    (_, (process,)) = await say(LONG)
    assert process.pid != pids[0]

    async def parent():
        await Serving().whole(slow_parser(), LONG)
        return psutil.Process(current_context().held[0].pid).ppid()

    template, _ = await behind_the_frontend(parent)
    os.kill(template, signal.SIGKILL)
    # Not even an entry in the kernel's table of processes is left.
    await until(lambda: not is_running(template))
    caplog.clear()
    assert (await say(LONG))[0] == (False, LONG, TOKENS)
    assert (await say(LONG))[0] == (False, LONG, TOKENS)
    (line,) = caplog.messages
    assert "forking another template" in line


async def test_a_signal_that_goes_to_all_processes_ends_no_request():
    async def call():
        made = slow_parser()
        first = await Serving().whole(made, LONG)
        (process,) = current_context().held
        for pid in (process.pid, psutil.Process(process.pid).ppid()):
            os.kill(pid, signal.SIGTERM)
        return first, await Serving().whole(made, LONG), process.pid

    (first, second, pid), _ = await behind_the_frontend(call)
    assert first == second == (False, LONG, TOKENS)
    await until(lambda: not is_running(pid))


def forks_of(parent, monkeypatch):
    """Lets only `parent` fork. Returns a list of the processes that tried to."""
    asked, fork = [], os.fork

    def refuse_others():
        asked.append(os.getpid())
        if os.getpid() == parent:
            return fork()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse_others)
    return asked


@pytest.mark.parametrize("forks", [None, API_SERVER], ids=["not even the template", "only the template"])
async def test_where_no_process_can_be_forked_the_api_server_forks_once_and_places_are_free(forks, monkeypatch):
    asked = forks_of(forks, monkeypatch)
    processes = ParserProcesses()
    for _ in range(MOST_OF_TENANT + 1):
        with pytest.raises(UnmovableError) as raised:
            await processes.of(RequestContext(), [])
        assert isinstance(raised.value.__cause__, OSError)
    assert asked == [API_SERVER]
    processes.close()


async def test_a_template_that_is_stuck_is_replaced(monkeypatch):
    processes = ParserProcesses()
    process = await processes.of(RequestContext(), [])
    stuck = psutil.Process(process.pid).ppid()
    process.close()
    os.kill(stuck, signal.SIGSTOP)

    class Another(Template):
        def __init__(self, shared):
            monkeypatch.setattr(parser_processes, "_START_SECONDS", 60)
            super().__init__(shared)

    monkeypatch.setattr(parser_processes, "Template", Another)
    monkeypatch.setattr(parser_processes, "_START_SECONDS", 0.1)
    process = await processes.of(RequestContext(), [])
    assert psutil.Process(process.pid).ppid() != stuck
    await until(lambda: not is_running(stuck))
    process.close()
    processes.close()


async def test_the_template_is_forked_before_the_first_request(monkeypatch):
    processes, made = ParserProcesses(), slow_parser()
    renderer = SimpleNamespace(tokenizer=made.model_tokenizer)
    serving = SimpleNamespace(parser_cls=SlowParser, renderer=renderer, model_config=None)
    parser_bounds._open_processes(processes, SimpleNamespace(state=SimpleNamespace(openai_serving_chat=serving)))
    asked = forks_of(None, monkeypatch)
    process = await processes.of(RequestContext(), [SlowParser, made.model_tokenizer])
    assert asked == []
    process.close()
    processes.close()
    # Without a parser, no fork is needed.
    parser_bounds._open_processes(processes, SimpleNamespace(state=SimpleNamespace(openai_serving_chat=None)))
    assert asked == []


async def test_a_request_that_is_given_up_ends_its_process():
    pids = []

    async def call():
        made = slow_parser()
        await Serving().whole(made, LONG)
        pids.append(current_context().held[0].pid)
        await Serving().whole(made, "endless")

    task = asyncio.create_task(behind_the_frontend(call))
    await until(lambda: pids)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not is_running(pids[0]))


async def test_a_call_that_outlives_its_request_leaves_no_process(refusals):
    def processes():
        return {each for each, parent in descendants(os.getpid(), "ppid") if parent != API_SERVER}

    tasks = []

    async def call():
        tasks.append(asyncio.create_task(Serving().whole(slow_parser(), LONG)))

    # Engines of other tests have processes, too.
    others = processes()
    await behind_the_frontend(call)
    with pytest.raises(generation_error()):
        await tasks[0]
    await until(lambda: processes() <= others)


async def test_a_tenant_holds_some_of_the_processes_and_its_next_request_waits(monkeypatch):
    monkeypatch.setattr(parser_processes, "MOST_OF_TENANT", 1)
    go_on, begun = asyncio.Event(), []

    async def hold(name):
        await Serving().whole(slow_parser(), LONG)
        begun.append(name)
        await go_on.wait()

    first = asyncio.create_task(behind_the_frontend(partial(hold, "first"), "many"))
    await until(lambda: begun)
    second = asyncio.create_task(behind_the_frontend(partial(hold, "second"), "many"))
    assert (await say(LONG, "other"))[0] == (False, LONG, TOKENS)
    # Answers that need no process are served as before.
    assert (await say("0", "many"))[0] == (True, "0", TOKENS)
    assert begun == ["first"]
    go_on.set()
    await asyncio.gather(first, second)
    assert begun == ["first", "second"]


async def test_what_cannot_be_sent_elsewhere_stays_within_the_bounds_of_the_event_loop(refusals):
    class Unnamed:
        """A request that cannot be pickled."""

    found, held = await behind_the_frontend(lambda: Serving().whole(slow_parser(), "0.001", Unnamed()))
    assert (found[0], held) == (True, [])
    with pytest.raises(generation_error()):
        await behind_the_frontend(lambda: Serving().whole(slow_parser(), LONG, Unnamed()))
    assert [refusal.status for refusal in refusals] == [422]


async def test_a_parser_that_has_missed_pieces_reads_no_more(refusals):
    class Unnamed:
        """Cannot be pickled."""

    async def call():
        made = slow_parser()
        assert (await Serving().whole(made, LONG))[0] is False
        await Serving().whole(made, "0", Unnamed())

    with pytest.raises(generation_error()):
        await behind_the_frontend(call)
    assert [refusal.status for refusal in refusals] == [422]


class Large:
    """A request that takes long to pickle."""

    pickled = 0

    def __reduce__(self):
        Large.pickled += 1
        busy(float(LONG))
        return Large, ()


async def test_a_request_that_takes_long_to_send_is_not_sent_and_counts_for_its_own_budget(refusals, caplog):
    async def call():
        made, begin = slow_parser(), time.thread_time()
        with pytest.raises(generation_error()):
            await Serving().whole(made, LONG, Large())
        return time.thread_time() - begin, current_context().parsing.total - current_context().parsing.left

    (taken, counted), _ = await behind_the_frontend(call)
    assert Large.pickled == 1
    assert taken < float(LONG)
    assert counted > 0.015
    assert "sending the request takes too long" in caplog.text
    assert [refusal.status for refusal in refusals] == [422]


async def test_a_request_whose_budget_is_spent_is_not_said_to_take_long_to_send(refusals, caplog):
    async def call():
        made = slow_parser()
        assert (await Serving().whole(made, LONG))[0] is False
        current_context().parsing.spend_elsewhere(100)
        with pytest.raises(generation_error()):
            await Serving().whole(made, "0")

    await behind_the_frontend(call)
    assert [refusal.status for refusal in refusals] == [422]
    (line,) = caplog.messages
    assert "took too long with an answer" in line


async def test_without_greenlet_the_api_server_says_how_parsers_are_bounded(monkeypatch, caplog):
    monkeypatch.delattr(Parser, "is_bounded")
    monkeypatch.setattr(Parser, "__init_subclass__", vars(Parser)["__init_subclass__"])
    monkeypatch.setattr(parser_bounds, "CAN_SUSPEND", False)
    monkeypatch.setattr("tenantzone_runtime.frontend.transport.opening._serving_openers", openers := [])
    bound_parsers()
    (line,) = caplog.messages
    assert "greenlet is missing" in line
    assert "10 ms" in line
    assert "422" in line
    assert openers == []


async def test_every_method_of_vllm_that_calls_parsers_can_wait():
    from importlib import import_module

    for module, owner, names in parser_bounds._CALLERS:
        for name in names:
            method = getattr(getattr(import_module(module), owner), name, None)
            if method is None and name == "chat_completion_stream_generator_raw":
                continue  # vLLM 0.33 has it.
            assert hasattr(method, "is_suspendable"), (owner, name)


def test_a_whole_answer_outside_such_a_method_stays(refusals):
    context = RequestContext()

    async def app(scope, receive, send):
        with pytest.raises(generation_error()):
            parse_whole(make_parser(ParserName("tool", "dots")), HOSTILE_WHOLE["dots"], chat_request())
        assert context.held == []

    asyncio.run(context.carried_through(app)({"type": "http"}, None, None))
    assert [refusal.status for refusal in refusals] == [422]
