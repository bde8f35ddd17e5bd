"""Formats log lines as JSON, in the same way for the operator and the runtime.

A log line names its subject, such as a zone, in the message and also in fields with fixed names, which only the JSON
format shows. All other attributes of a record are omitted, because other code may have set them.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

FIELDS = ("zone", "tenant", "pool", "pool_namespace", "generation", "pod")
"""Names of the fields for a line's subject. ``generation`` is the pool config's, and ``pod`` is the engine's."""


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object on one line.

    The object has ``timestamp``, ``level``, ``logger``, ``message``, the set fields of `FIELDS`, and ``exception`` if
    the record has an exception.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "timestamp": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = self.fields(record)
        line |= {name: fields[name] for name in FIELDS if fields.get(name) not in (None, "")}
        if record.exc_text or record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info or (None, None, None))
        # The default ensure_ascii escapes lone surrogates, which a name may contain. Write unsupported types as text.
        return json.dumps(line, default=str)

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """Returns the fields of `FIELDS` that the record has, which identify the line's subject."""
        return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
