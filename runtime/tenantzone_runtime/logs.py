"""Formats the log lines of the runtime and of vLLM as JSON.

Each vLLM process reads its logging configuration from a file that an environment variable names. vLLM's HTTP server
reads the same file. So one file makes all log lines JSON.
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
"""The logging configuration file, in the schema of ``logging.config``."""

LEVEL = os.environ.get(LEVEL_VARIABLE, "INFO").upper()
"""vLLM's log level. The configuration file refers to this variable, so that it does not override the user's setting."""

_process: Mapping[str, object] = {}


def describe_process(**fields: object) -> None:
    """Add fields to each later JSON log line of this process. A field that a line sets itself takes precedence.

    Args:
        fields: the fields by name. Fields of earlier calls stay.
    """
    global _process
    # Replace the whole mapping, because other threads may be reading it.
    _process = {**_process, **fields}


class ProcessJsonFormatter(JsonFormatter):
    """Formats log records as JSON, and adds the fields of `describe_process` to each line."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        return {**_process, **super().fields(record)}


def configure_if_json() -> None:
    """Write log lines and Python's warnings as JSON from now on, if the environment of this process says so."""
    if os.environ.get(CONFIG_VARIABLE) == str(JSON_CONFIG):
        logging.config.dictConfig(json.loads(JSON_CONFIG.read_text()))
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("the process ends: %s", error, exc_info=(kind, error, at))
