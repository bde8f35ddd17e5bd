"""Keeps tracebacks of client errors out of the log.

On the routes of Anthropic's API, vLLM logs each exception with its traceback, even if the client caused it and vLLM
answers with status 400. A client with an API key could fill the log and so hide real failures.

Upstream change that would make this module unnecessary: vLLM's Anthropic routes log no traceback for errors that they
answer with 400.
"""

import logging
from typing import Final

_LOGGER: Final = "vllm.entrypoints.anthropic.api_router"
_MISTAKES: Final = frozenset({"VLLMClientError", "ValueError", "TypeError", "OverflowError", "TemplateError"})
"""Names of exception classes that vLLM answers with a status below 500. Not all versions have all classes."""


def log_client_mistakes_without_tracebacks() -> None:
    """Log client errors on vLLM's Anthropic routes in one line from now on, without a traceback."""
    logger = logging.getLogger(_LOGGER)
    if _without_traceback not in logger.filters:
        logger.addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    if kind is not None and any(each.__name__ in _MISTAKES for each in kind.__mro__):
        record.exc_info = record.exc_text = None
    return True
