"""Bounds what vLLM's tool and reasoning parsers take of the API server's event loop, by request.

A request whose parsers have spent their budget ends with an error of the front door. vLLM never gets a result of the
parser that was interrupted, so that no text is sent which the parser would have hidden.
"""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial, wraps
from itertools import chain
from typing import Any, Final

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from tenantzone_runtime.door.answers import Refusal
from tenantzone_runtime.door.bearing import borne
from tenantzone_runtime.door.parsing_budget import ParsingBudget
from tenantzone_runtime.door.verdict import give_verdict
from tenantzone_runtime.engine.interruption import TimeSpentError, is_running, prepare_interruption, run_for
from tenantzone_runtime.engine.versions import generation_error

_log = logging.getLogger(__name__)

_METHODS: Final = (
    "parse",
    "parse_delta",
    "is_reasoning_end",
    "count_reasoning_tokens",
    "set_prompt_token_ids",
    # Of the parser of gpt-oss's answers.
    "process_chunk",
    "flush",
)
"""Which vLLM's API server calls with an answer, or with a prompt's tokens."""
_SPENT_STATUS: Final = 422
"""Clients do not repeat the request by themselves, which would make the same answer at the same cost."""
_SPENT: Final = (
    "The server could not find the tool calls and the reasoning in this answer within its limit of processor time; "
    "ask for a shorter answer, or send the request without tools"
)

_Method = Callable[..., Any]


def bound_parsers() -> None:
    """Have each parser of this API server run within the budget of the request whose answer it gets."""
    # Imported here: only the API server has need of it.
    from vllm.parser.abstract_parser import Parser

    if hasattr(Parser, "is_bounded"):
        return
    prepare_interruption()
    Parser.is_bounded = True
    _bound_methods(Parser)
    pending = [Parser]
    while pending:
        for subclass in pending.pop().__subclasses__():
            _bound_methods(subclass)
            pending.append(subclass)
    # vLLM imports some parsers, and makes the classes that it uses, when it needs them.
    Parser.__init_subclass__ = classmethod(_bound_methods)


class ParsedOutputs:
    """The outputs of one request, in parts that its parsers have time for.

    Args:
        params: of the request.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._is_stream = params.output_kind is RequestOutputKind.DELTA
        self._kept: RequestOutput | None = None

    def add(self, output: RequestOutput) -> RequestOutput | None:
        """Return what vLLM may have the parsers read next, and count its tokens.

        Args:
            output: the next one of the engine's.

        Returns:
            None if the parsers should read it together with the next output.
        """
        bearing = borne()
        if bearing is None:
            return output
        if self._kept is not None:
            # As vLLM joins the pieces of a stream that a client has not read yet.
            self._kept.add(output, aggregate=True)
            output, self._kept = self._kept, None
        tokens = _tokens_of(output)
        if self._is_stream and not output.finished and not bearing.parsing.has_time_for(tokens):
            self._kept = output
            return None
        bearing.parsing.begin_turn(tokens)
        return output


def _tokens_of(output: RequestOutput) -> int:
    return sum(len(completion.token_ids) for completion in output.outputs)


def _bound_methods(parser: type) -> None:
    for name in _METHODS:
        method = vars(parser).get(name)
        if method is not None and not hasattr(method, "is_bounded"):
            setattr(parser, name, _bounded(method))


def _bounded(method: _Method) -> _Method:
    """Return the method, within the budget of the request that it is called for."""

    @wraps(method)
    def call(parser: Any, *args: Any, **kwargs: Any) -> Any:
        bearing = borne()
        # A parser calls others, and itself: the first call bounds those.
        if bearing is None or is_running():
            return method(parser, *args, **kwargs)
        sizes = _sizes(chain(args, kwargs.values()))
        begin = time.thread_time()
        try:
            return run_for(bearing.parsing.limit(*sizes), partial(method, parser, *args, **kwargs))
        except TimeSpentError:
            raise _ended(bearing.parsing, parser) from None
        finally:
            bearing.parsing.spend(time.thread_time() - begin, *sizes)

    vars(call)["is_bounded"] = True
    return call


def _sizes(arguments: Iterable[Any]) -> tuple[int, int]:
    """The characters and the token ids that a parser gets."""
    characters = ids = 0
    for argument in arguments:
        if isinstance(argument, str):
            characters += len(argument)
        elif isinstance(argument, list | tuple):
            ids += len(argument)
    return characters, ids


def _ended(budget: ParsingBudget, parser: Any) -> Exception:
    """Have the door end the request that this is called for, and return the exception that ends it in vLLM."""
    parts = (parser.reasoning_parser_cls, parser.tool_parser_cls)
    names = " and ".join(part.__name__ for part in parts if part is not None) or type(parser).__name__
    _log.warning(
        "a request has ended with status %d: the parser %s took too long with an answer of %d tokens",
        _SPENT_STATUS,
        names,
        budget.tokens,
    )
    give_verdict(Refusal(_SPENT_STATUS, "parsing_budget", _SPENT))
    # Without a word in vLLM's log. What vLLM says to the client, the door drops.
    return generation_error()(_SPENT)
