"""The runtime's log lines as JSON, and vLLM's with them.

vLLM reads its logging configuration from a file that an environment variable names, in each of its processes, and its
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
"""In the schema of ``logging.config``."""

LEVEL = os.environ.get(LEVEL_VARIABLE, "INFO").upper()
"""That file takes vLLM's level from here: such a file would otherwise count for more than what the user has set."""

_process: Mapping[str, object] = {}


def describe_process(**fields: object) -> None:
    """Say what every further line of this process is about, unless the line itself says otherwise.

    Args:
        fields: by their names; others that were set before stay.
    """
    global _process
    # As a whole: other threads may be writing lines.
    _process = {**_process, **fields}


class ProcessJsonFormatter(JsonFormatter):
    """Each line says what the process is about, too."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        return {**_process, **super().fields(record)}


def configure_if_json() -> None:
    """Write log lines and Python's warnings as JSON from now on, if this process is to."""
    if os.environ.get(CONFIG_VARIABLE) == str(JSON_CONFIG):
        logging.config.dictConfig(json.loads(JSON_CONFIG.read_text()))
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("the process ends: %s", error, exc_info=(kind, error, at))
