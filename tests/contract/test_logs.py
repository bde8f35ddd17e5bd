import json
import logging
import sys

import pytest

from tenantzone_contract.logs import JsonFormatter


@pytest.fixture
def lines():
    """A logger, and its output as JSON."""
    written = []

    class Keep(logging.Handler):
        def emit(self, record):
            written.append(json.loads(self.format(record)))

    logger, handler = logging.getLogger("tests.logs"), Keep()
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)  # whatever level other tests have given to the root
    yield logger, written
    logger.removeHandler(handler)
    logger.propagate = True


def test_a_line_says_when_how_grave_who_and_what(lines):
    logger, written = lines
    logger.warning("count: %d", 3)
    (line,) = written
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "WARNING", "logger": "tests.logs", "message": "count: 3"}


def test_a_line_says_what_it_is_about_and_nothing_else_that_is_on_it(lines):
    logger, written = lines
    logger.warning("full", extra={"zone": "acme", "tenant": "", "generation": 4, "key": "not to be shown"})
    (line,) = written
    about = {key: line[key] for key in line if key not in ("timestamp", "level", "logger")}
    assert about == {"message": "full", "zone": "acme", "generation": 4}


def test_a_line_of_several_rows_is_one_line_with_its_exception(lines):
    logger, written = lines
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logger.exception("failed\nbadly")
    (line,) = written
    assert line["message"] == "failed\nbadly"
    assert line["exception"].endswith("ValueError: first\nsecond")
    assert "\n" not in JsonFormatter().format(logging.makeLogRecord({"msg": "a\nb", "exc_info": sys.exc_info()}))
