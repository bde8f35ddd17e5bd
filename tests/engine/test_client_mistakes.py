"""A client's mistake is logged in one line, and a server failure with its traceback."""

import logging

import jinja2
import pytest
from vllm.exceptions import VLLMValidationError

from tenantzone_runtime.engine.patches.client_mistakes import log_client_mistakes_without_tracebacks
from tenantzone_runtime.engine.patches.redaction import Redacting

LOGGER = "vllm.entrypoints.anthropic.api_router"


def logged(error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> str:
    # As in the server: this one writes the traceback before any filter sees the record.
    monkeypatch.setattr(logging, "_logRecordFactory", Redacting(logging.LogRecord))
    logger = logging.getLogger(LOGGER)
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    log_client_mistakes_without_tracebacks()
    log_client_mistakes_without_tracebacks()
    try:
        raise error
    except Exception as raised:
        logger.exception("Error in create_messages: %s", raised)
    return caplog.text


@pytest.mark.parametrize(
    "error", [VLLMValidationError("too long"), ValueError("too long"), jinja2.TemplateError("too long")], ids=repr
)
def test_a_mistake_of_a_client_is_one_line(error, caplog, monkeypatch):
    text = logged(error, caplog, monkeypatch)
    assert "Error in create_messages: too long" in text
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1


def test_a_failure_of_the_server_has_its_traceback(caplog, monkeypatch):
    assert "Traceback" in logged(RuntimeError("broken"), caplog, monkeypatch)
