"""Has vLLM's API server answer with 400 where it cannot make a prompt of a request's messages.

vLLM raises errors of its own for most messages that it does not read. Others fail in the code that reads them: a
tool's output in parts, a message without content or a refusal among the input of ``/v1/responses``. vLLM answers these
with 500 and a traceback in the log, as many as a client sends.
"""

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final

from vllm.exceptions import VLLMValidationError

logger = logging.getLogger(__name__)

_READERS: Final = (
    ("vllm.renderers.base", "BaseRenderer", ("render_chat", "render_chat_async")),
    ("vllm.renderers.online_renderer", "OnlineRenderer", ("render_chat", "render_responses")),
    ("vllm.entrypoints.openai.responses.serving", "OpenAIServingResponses", ("_make_request",)),
)
"""Methods that make prompts of messages, by module and class; not all versions have all of them."""
_UNREADABLE: Final = (AssertionError, AttributeError, LookupError)
"""What code raises that finds another form than it expects; vLLM answers ValueError and TypeError with 400 itself."""


def refuse_unreadable_messages() -> None:
    """Have the API server refuse messages that vLLM fails to read, from now on."""
    for module, owner, names in _READERS:
        try:
            found = getattr(import_module(module), owner)
        except (ImportError, AttributeError):
            continue
        for name in names:
            read = getattr(found, name, None)
            if read is not None and not hasattr(read, "refuses_unreadable"):
                setattr(found, name, _refusing(read))


def _refusing(read: Callable[..., Any]) -> Callable[..., Any]:
    if iscoroutinefunction(read):

        @wraps(read)
        async def read_or_refuse_async(*args: Any, **kwargs: Any) -> Any:
            with _as_mistakes():
                return await read(*args, **kwargs)

        read_or_refuse: Any = read_or_refuse_async
    else:

        @wraps(read)
        def read_or_refuse_at_once(*args: Any, **kwargs: Any) -> Any:
            with _as_mistakes():
                return read(*args, **kwargs)

        read_or_refuse = read_or_refuse_at_once
    read_or_refuse.refuses_unreadable = True
    return read_or_refuse


@contextmanager
def _as_mistakes() -> Iterator[None]:
    """Raise a client's mistake in place of an error of code that reads messages, with one line in the log."""
    try:
        yield
    except _UNREADABLE as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = type(error).__name__
        # Without the error's text, which may quote the request.
        logger.warning("vLLM cannot read a request's messages: %s at %s:%s", kind, place.filename, place.lineno)
        raise VLLMValidationError(
            "The engine cannot read the request's messages: one of them, or a part of its content, has a form that the"
            " engine does not support; send its content as text"
        ) from None
