"""Log lines as JSON, alike on both sides, with fields that say what a line is about.

A line of ours names its subject twice: in its text, for people, and by fields of fixed names, which only JSON shows.
Other fields are not shown, so nothing gets into a line because somebody has put it onto the record.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

FIELDS = ("zone", "tenant", "pool", "pool_namespace", "generation", "pod")
"""What a line may be about. The generation is that of the pool's config; the pod is an engine's."""


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object on one line.

    It has ``timestamp``, ``level``, ``logger``, ``message``, those fields that are known, and ``exception`` if there
    is one.
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
        # A name may hold half of a surrogate pair, and whatever can't be shown as JSON is shown as text.
        return json.dumps(line, default=str)

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """The fields that say what this one line is about."""
        return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
