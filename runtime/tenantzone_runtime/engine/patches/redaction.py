"""Keeps seals out of the logs of all loggers.

A seal is among a request's extra arguments, which vLLM can log (``--enable-log-requests``, ``--log-error-stack``). A
filter on a logger or a handler would miss other loggers and handlers that are configured later, but the record factory
sees each line.

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
            return record  # the handler reports that the message does not fit its arguments
        clean = without_seals(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None:
            # Formatters use this text instead of the exception.
            record.exc_text = without_seals(_as_text.formatException(record.exc_info))
        return record


def redact_log_records() -> None:
    """Keep seals out of all log records of this process from now on."""
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, Redacting):
        logging.setLogRecordFactory(Redacting(factory))
