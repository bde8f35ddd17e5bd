"""JSON log lines of the runtime and of vLLM.

vLLM reads its logging configuration from a file named in an environment variable, in each of its processes, and its
HTTP server reads the same file. So one file turns all lines into JSON.
"""

import json
import logging.config
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tenantzone_contract.logs import JsonFormatter

CONFIG_VARIABLE = "VLLM_LOGGING_CONFIG_PATH"
LEVEL_VARIABLE = "VLLM_LOGGING_LEVEL"

JSON_CONFIG = Path(__file__).with_name("logging.json")
"""The configuration file, in the schema of ``logging.config``."""

LEVEL = os.environ.get(LEVEL_VARIABLE, "INFO").upper()
"""vLLM's log level, which the file reads from here: otherwise the file would override the user's setting."""

_process: Mapping[str, object] = {}


def describe_process(**fields: object) -> None:
    """Set fields of every further log line of this process, unless the line itself sets them.

    Args:
        fields: the fields by name; earlier fields stay.
    """
    global _process
    # Replaced as a whole, because other threads may be writing lines.
    _process = {**_process, **fields}


class ProcessJsonFormatter(JsonFormatter):
    """Adds the fields of the process to each line."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        return {**_process, **super().fields(record)}


def configure_if_json() -> None:
    """Write log lines and Python's warnings as JSON from now on, if this process is configured for it."""
    if os.environ.get(CONFIG_VARIABLE) == str(JSON_CONFIG):
        logging.config.dictConfig(json.loads(JSON_CONFIG.read_text()))
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("the process ends: %s", error, exc_info=(kind, error, at))
