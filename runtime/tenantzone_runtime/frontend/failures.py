"""Answers requests at which the frontend itself fails, without disclosing the request's contents.

Such a failure is a bug in the frontend. The client gets an error in its API's format. The log gets one line without the
exception's text or a traceback: the text, and the locals that some log handlers add, may quote the request's body.
"""

import logging
import traceback

from tenantzone_runtime.frontend.answers import Refusal, Scope

_log = logging.getLogger(__name__)


class BodyCheckFailed(Exception):
    """A check of a request's body has failed with an exception, which is this one's cause. A retry would fail, too."""


def failure(scope: Scope, error: Exception) -> Refusal:
    """Log an exception of the frontend's own, and return the client's answer.

    Args:
        scope: of the request.
        error: raised before the request reached vLLM.

    Returns:
        A refusal with 400, which clients do not retry, if the body causes the failure; otherwise with 503.
    """
    cause = error.__cause__ if isinstance(error, BodyCheckFailed) and error.__cause__ is not None else error
    frame = traceback.extract_tb(cause.__traceback__)[-1]
    _log.error(
        "the frontend failed at a request to %r: %s in %s, %s line %d",
        scope["path"],
        type(cause).__name__,
        frame.name,
        frame.filename,
        frame.lineno or 0,
    )
    if cause is not error:
        return Refusal(400, "failed", "The server failed to check this request's body; send a simpler one")
    return Refusal(503, "failed", "The server failed to check this request; try again", headers={"retry-after": "1"})
