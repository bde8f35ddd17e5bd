"""Answers requests for which the frontend itself raises an exception, without logging the request's contents.

Such an exception is a bug in the frontend. The client gets an error in its API's format. The log gets one line, without
the exception's text and traceback. Both may contain parts of the request's body, because some log handlers add local
variables to tracebacks.
"""

import logging
import traceback

from tenantzone_runtime.frontend.responses.answers import Refusal, Scope

_log = logging.getLogger(__name__)


class BodyCheckFailed(Exception):
    """A check of a request's body raised an unexpected exception, which is ``__cause__``. A retry would fail, too."""


def failure(scope: Scope, error: Exception) -> Refusal:
    """Log an exception of the frontend, and return the refusal for the client.

    Args:
        scope: the request's ASGI scope.
        error: the exception, raised before the request reached vLLM.

    Returns:
        A refusal. Its status is 400 for a `BodyCheckFailed`, so that clients do not retry, and 503 for other errors.
    """
    cause = error.__cause__ if isinstance(error, BodyCheckFailed) and error.__cause__ is not None else error
    frame = traceback.extract_tb(cause.__traceback__)[-1]
    _log.error(
        "the frontend failed to process a request to %r: %s in %s, %s line %d",
        scope["path"],
        type(cause).__name__,
        frame.name,
        frame.filename,
        frame.lineno or 0,
    )
    if cause is not error:
        return Refusal(400, "failed", "The server failed to check this request's body; send a simpler one")
    return Refusal(503, "failed", "The server failed to check this request; try again", headers={"retry-after": "1"})
