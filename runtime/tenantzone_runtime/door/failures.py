"""Answers requests at which the front door itself fails, without repeating to anyone what the request says.

Such a failure is a bug in the door. The client gets an error of its API that it understands. The log gets one line: the
text of an exception, and the locals that some log handlers add to a traceback, may quote the request's body.
"""

import logging
import traceback

from tenantzone_runtime.door.answers import Refusal, Scope

_log = logging.getLogger(__name__)


class BodyCheckFailed(Exception):
    """A check of a request's body has failed with an exception, which is this one's cause. It would fail again."""


def failure(scope: Scope, error: Exception) -> Refusal:
    """Log an exception of the door's own, and return what the client gets.

    Args:
        scope: of the request.
        error: raised before the request reached vLLM.

    Returns:
        A refusal with 400, which clients do not repeat, if the door fails at the body; otherwise with 503.
    """
    cause = error.__cause__ if isinstance(error, BodyCheckFailed) and error.__cause__ is not None else error
    frame = traceback.extract_tb(cause.__traceback__)[-1]
    _log.error(
        "the front door failed at a request to %r: %s in %s, %s line %d",
        scope["path"],
        type(cause).__name__,
        frame.name,
        frame.filename,
        frame.lineno or 0,
    )
    if cause is not error:
        return Refusal(400, "failed", "The server failed to check this request's body; send a simpler one")
    return Refusal(503, "failed", "The server failed to check this request; try again", headers={"retry-after": "1"})
