"""Keeps seals out of the log, whoever writes the line.

The seal travels in a request's extra arguments, and vLLM prints those when it is asked to
(``--enable-log-requests``, ``--log-error-stack``). A filter on a logger or a handler would miss other loggers, and
handlers that a configuration adds later; the factory of records sees each line.
"""

import logging
from collections.abc import Callable
from typing import Any

from tenantzone_runtime.seal import without_seals

_as_text = logging.Formatter()


class Redacting:
    """A factory of log records that blots out the seals in them.

    Args:
        factory: makes them otherwise.
    """

    def __init__(self, factory: Callable[..., logging.LogRecord]) -> None:
        self._factory = factory

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._factory(*args, **kwargs)
        try:
            text = record.getMessage()
        except Exception:
            return record  # whoever writes the line will tell that it does not fit its arguments
        clean = without_seals(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None:
            # Formatters take this text in place of the exception.
            record.exc_text = without_seals(_as_text.formatException(record.exc_info))
        return record


def redact_log_records() -> None:
    """Keep seals out of all log records of this process from now on."""
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, Redacting):
        logging.setLogRecordFactory(Redacting(factory))
