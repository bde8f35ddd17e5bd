"""Removes seals from all log records.

A seal is one of a request's extra arguments, which vLLM can log (``--enable-log-requests``, ``--log-error-stack``). A
filter on a logger or a handler would miss loggers and handlers that are configured later, but the record factory
creates all records.

Upstream change that would make this module unnecessary: extra arguments that vLLM never logs.
"""

import logging
from collections.abc import Callable
from typing import Any

from tenantzone_runtime.seal import without_seals

_as_text = logging.Formatter()


class Redacting:
    """A factory of log records that redacts seals.

    Args:
        factory: the factory that creates the records.
    """

    def __init__(self, factory: Callable[..., logging.LogRecord]) -> None:
        self._factory = factory

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._factory(*args, **kwargs)
        try:
            text = record.getMessage()
        except Exception:
            return record  # the handler will report that the message and its arguments do not match
        clean = without_seals(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None:
            # If `exc_text` is set, formatters use it instead of the exception.
            record.exc_text = without_seals(_as_text.formatException(record.exc_info))
        return record


def redact_log_records() -> None:
    """Remove seals from all log records that this process creates from now on."""
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, Redacting):
        logging.setLogRecordFactory(Redacting(factory))
