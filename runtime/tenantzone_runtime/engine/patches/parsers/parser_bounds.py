"""Bounds the CPU time that vLLM's parsers for tool calls and reasoning take on the event loop, for each request.

A parser that takes too long on the API server's event loop continues in another process. If the parsers of a request
have spent its budget of CPU time, the frontend ends the request with an error. vLLM never gets the result of an
interrupted parser, so it sends no text that the parser would have hidden.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial, wraps
from importlib import import_module
from itertools import chain
from typing import Any, Final

from tenantzone_runtime.engine.patches.parsers.interruption import (
    TimeSpentError,
    is_running,
    prepare_interruption,
    run_for,
)
from tenantzone_runtime.engine.patches.parsers.parser_processes import (
    ParserProcesses,
    ProcessEndedError,
    UnmovableError,
)
from tenantzone_runtime.engine.patches.parsers.parser_reading import PARAMETERS, Reading
from tenantzone_runtime.engine.patches.parsers.suspension import CAN_SUSPEND, can_wait, make_suspendable, wait_for
from tenantzone_runtime.engine.versions import generation_error
from tenantzone_runtime.frontend.body.parsing_budget import EXCESS_SECONDS, ParsingBudget
from tenantzone_runtime.frontend.request_context import RequestContext, current_context
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.responses.engine_refusal import refuse_answer
from tenantzone_runtime.frontend.transport.opening import before_serving

_log = logging.getLogger(__name__)

_METHODS: Final = (
    *PARAMETERS,
    # Methods of the parser of gpt-oss's answers.
    "process_chunk",
    "flush",
)
"""Parser methods that vLLM's API server calls with parts of an answer or with a prompt's tokens."""
_CALLERS: Final = (
    (
        "vllm.entrypoints.openai.chat_completion.serving",
        "OpenAIServingChat",
        (
            "chat_completion_full_generator",
            "chat_completion_stream_generator",
            # In vLLM 0.33, `/v1/messages` calls this method directly, without `chat_completion_stream_generator`.
            "chat_completion_stream_generator_raw",
        ),
    ),
    (
        "vllm.entrypoints.openai.chat_completion.batch_serving",
        "OpenAIServingChatBatch",
        ("chat_completion_full_generator_batch",),
    ),
    (
        "vllm.entrypoints.openai.responses.serving",
        "OpenAIServingResponses",
        ("responses_full_generator", "responses_stream_generator"),
    ),
)
"""vLLM's modules, classes and methods that call parsers with an answer. `/v1/messages` uses the first class."""
_PARSER_CLASSES: Final = (
    ("openai_serving_chat", "parser_cls"),
    ("openai_serving_chat_batch", "parser_cls"),
    ("openai_serving_responses", "parser"),
    ("anthropic_serving_messages", "parser_cls"),
)
"""Names of serving objects in vLLM's application state, each with the name of its attribute for the parser class."""
_SPENT_STATUS: Final = 422
"""HTTP status if a request's budget is spent. With this status, clients do not retry automatically. A retry would take
as much CPU time again."""
_SPENT: Final = (
    "The server could not parse the tool calls and the reasoning in this answer within its CPU time limit; "
    "ask for a shorter answer, or send the request without tools"
)
_READING: Final = "tenantzone_reading"
"""Name of the attribute of a parser that contains its `Reading`, the record of its input."""

_Method = Callable[..., Any]


def bound_parsers() -> None:
    """Make all parsers of this API server stay within the CPU time budgets of the requests whose answers they parse."""
    # Imported here, because only the API server needs it.
    from vllm.parser.abstract_parser import Parser

    if hasattr(Parser, "is_bounded"):
        return
    prepare_interruption()
    Parser.is_bounded = True
    Parser.__new__ = _new
    processes = ParserProcesses()
    _bound_methods(Parser, processes)
    pending = [Parser]
    while pending:
        for subclass in pending.pop().__subclasses__():
            _bound_methods(subclass, processes)
            pending.append(subclass)
    # Bound later subclasses, too, because vLLM imports or creates parser classes on demand.
    Parser.__init_subclass__ = classmethod(partial(_bound_methods, processes=processes))
    if not CAN_SUSPEND:
        _log.warning(
            "the Python package greenlet is missing, so a request in which one parser call takes more than %d ms ends "
            "with status %d. Install greenlet in vLLM's environment",
            1000 * EXCESS_SECONDS,
            _SPENT_STATUS,
        )
        return
    for module, owner, names in _CALLERS:
        for name in names:
            _make_suspendable(module, owner, name)
    before_serving(partial(_open_processes, processes))


def _open_processes(processes: ParserProcesses, application: Any) -> None:
    """Make the API server fork its template process before it serves requests, because the fork blocks its event loop.

    Args:
        processes: the API server's parser processes.
        application: vLLM's application. If its known attributes contain no parser, the API server forks the template
            when the first request needs a process.
    """
    state = getattr(application, "state", None)
    objects: list[Any] = []
    for name, attribute in _PARSER_CLASSES:
        serving = getattr(state, name, None)
        class_ = getattr(serving, attribute, None)
        if class_ is not None:
            renderer = getattr(serving, "renderer", None)
            found = (class_, getattr(renderer, "tokenizer", None), getattr(serving, "model_config", None))
            objects += [each for each in found if each is not None]
    if not objects:
        return
    try:
        processes.open(objects)
    except OSError as error:
        _log.warning(
            "can't fork a template for parser processes, so slow parsers may stay on the event loop: %r", error
        )


def _make_suspendable(module: str, owner: str, name: str) -> None:
    try:
        class_ = getattr(import_module(module), owner)
    except (ImportError, AttributeError):
        # Another version of vLLM may have moved the class. Its parsers then stay on the event loop.
        _log.warning(
            "vLLM has no %s in %s: parsers that this class calls can't continue in other processes, so requests with "
            "long answers end earlier",
            owner,
            module,
        )
        return
    make_suspendable(class_, name, _may_parse)


def _may_parse(serving: Any) -> bool:
    """Returns whether a vLLM serving object may have a parser. Also True if it has none of the known attributes."""
    return getattr(serving, "parser_cls", getattr(serving, "parser", True)) is not None


def _new(class_: type, *args: Any, **kwargs: Any) -> Any:
    """Create a parser, and record its constructor arguments if it works for a request."""
    parser: Any = object.__new__(class_)
    if current_context() is not None:
        setattr(parser, _READING, Reading(class_, args, kwargs))
    return parser


def _bound_methods(parser: type, processes: ParserProcesses) -> None:
    for name in _METHODS:
        method = vars(parser).get(name)
        if method is not None and not hasattr(method, "is_bounded"):
            setattr(parser, name, _bounded(method, name, processes))


def _bounded(method: _Method, name: str, processes: ParserProcesses) -> _Method:
    """Returns a wrapper of a parser's method that stays within the budget of the current request."""

    @wraps(method)
    def call(parser: Any, *args: Any, **kwargs: Any) -> Any:
        context = current_context()
        # Don't bound nested calls of parsers, because the outermost call is bounded.
        if context is None or is_running():
            return method(parser, *args, **kwargs)
        call_here = partial(method, parser, *args, **kwargs)
        reading: Reading | None = getattr(parser, _READING, None)
        try:
            if reading is None or not reading.can_move(name) or not (can_wait() or reading.is_elsewhere):
                return _here(context.parsing, call_here, *_sizes(chain(args, kwargs.values())))
            arguments = dict(zip(PARAMETERS[name], args, strict=False)) | kwargs
            return _here_or_elsewhere(context, processes, reading, name, arguments, call_here)
        except (TimeSpentError, ProcessEndedError):
            raise _ended(context.parsing, parser) from None

    vars(call)["is_bounded"] = True
    return call


def _here_or_elsewhere(
    context: RequestContext,
    processes: ParserProcesses,
    reading: Reading,
    name: str,
    arguments: dict[str, Any],
    call_here: Callable[[], Any],
) -> Any:
    """Call a parser's method on the event loop or, if that takes too long, in another process.

    Args:
        context: the request's context.
        processes: starts the process.
        reading: the record of the parser's input.
        name: the name of the method.
        arguments: the arguments of the call, by name.
        call_here: calls the method.

    Raises:
        TimeSpentError: the request's budget is spent.
        ProcessEndedError: the process ended during the call.
    """
    budget = context.parsing
    if budget.is_turn_over:
        wait_for(asyncio.sleep(0))
        budget.have_others_served()
    # Whether the parser object on the event loop was interrupted or lacks input, and so can't continue.
    is_behind = reading.is_elsewhere
    if not reading.is_elsewhere and not (reading.is_slow and processes.has_place_for(context.tenant)):
        begin = time.thread_time()
        try:
            result = _here(budget, call_here)
        except TimeSpentError:
            if budget.left <= 0:
                raise
            is_behind = True
        else:
            reading.note(name, arguments, time.thread_time() - begin)
            return result
    try:
        return wait_for(_elsewhere(context, processes, reading, name, arguments))
    except UnmovableError as error:
        _log.warning(
            "a parser stays on the event loop, because it can't be sent to another process: %r",
            error.__cause__ or error,
        )
        reading.stay()
        if is_behind:
            raise TimeSpentError from None
    return _here(budget, call_here)


async def _elsewhere(
    context: RequestContext, processes: ParserProcesses, reading: Reading, name: str, arguments: dict[str, Any]
) -> Any:
    budget = context.parsing
    if reading.process is None:
        reading.process = await processes.of(context, reading.shared)
    call = reading.call(name, arguments, budget.left, budget.total)
    if budget.is_turn_over:
        await asyncio.sleep(0)
        budget.have_others_served()
    try:
        message = _here(budget, partial(reading.process.message, call))
    except TimeSpentError:
        if budget.left <= 0:
            raise
        raise UnmovableError("sending the request takes too long") from None
    except Exception as error:
        raise UnmovableError from error
    answer = await reading.process.call(call, message)
    budget.spend_elsewhere(answer.seconds)
    budget.have_others_served()
    if answer.kind == "spent":
        raise TimeSpentError
    if answer.kind == "raised":
        raise answer.value
    return answer.value


def _here(budget: ParsingBudget, call: Callable[[], Any], characters: int = 0, ids: int = 0) -> Any:
    """Call a parser's method on the event loop.

    Raises:
        TimeSpentError: the call was interrupted, or the budget allows no CPU time.
    """
    begin = time.thread_time()
    try:
        return run_for(budget.limit(characters, ids), call)
    finally:
        budget.spend(time.thread_time() - begin, characters, ids)


def _sizes(arguments: Iterable[Any]) -> tuple[int, int]:
    """Returns the number of characters and the number of token ids among a parser's arguments."""
    characters = ids = 0
    for argument in arguments:
        if isinstance(argument, str):
            characters += len(argument)
        elif isinstance(argument, list | tuple):
            ids += len(argument)
    return characters, ids


def _ended(budget: ParsingBudget, parser: Any) -> Exception:
    """Make the frontend end the current request. Returns the exception to raise, which ends the request in vLLM."""
    parts = (parser.reasoning_parser_cls, parser.tool_parser_cls)
    names = " and ".join(part.__name__ for part in parts if part is not None) or type(parser).__name__
    _log.warning(
        "a request has ended with status %d: the parser %s took too long with an answer of %d tokens",
        _SPENT_STATUS,
        names,
        budget.tokens,
    )
    refuse_answer(Refusal(_SPENT_STATUS, "parsing_budget", _SPENT))
    # vLLM does not log this exception, and the frontend replaces vLLM's response to the client.
    return generation_error()(_SPENT)
