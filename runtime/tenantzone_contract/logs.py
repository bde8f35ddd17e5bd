"""Formats log lines as JSON, the same on both sides, with fields that say what a line is about.

A line of ours names its subject twice: in its text, for people, and in fields of fixed names, which only JSON shows.
Other fields are not shown, so an attribute that other code sets on the record does not get into the line.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

FIELDS = ("zone", "tenant", "pool", "pool_namespace", "generation", "pod")
"""The fields that a line may have. The generation is that of the pool's config; the pod is an engine's."""


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object on one line.

    It has ``timestamp``, ``level``, ``logger``, ``message``, the known fields, and ``exception`` if there is one.
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
        # A name may contain half of a surrogate pair; a value that JSON does not have is written as text.
        return json.dumps(line, default=str)

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """Returns the fields that say what this line is about."""
        return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
