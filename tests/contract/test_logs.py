import json
import logging
import sys

import pytest

from tenantzone_contract import logs
from tenantzone_contract.logs import About, JsonFormatter, describe_process
from tenantzone_contract.seal import new_seal_key, seal, without_seals


@pytest.fixture(autouse=True)
def nothing_known_of_the_process(monkeypatch):
    monkeypatch.setattr(logs, "_process", {})


@pytest.fixture
def lines():
    """A logger, and what it has written, as JSON."""
    written = []

    class Keep(logging.Handler):
        def emit(self, record):
            written.append(json.loads(self.format(record)))

    logger, handler = logging.getLogger("tests.logs"), Keep()
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)  # whatever other tests have done to the root's
    yield logger, written
    logger.removeHandler(handler)
    logger.propagate = True


def test_a_line_says_when_how_grave_who_and_what(lines):
    logger, written = lines
    logger.warning("so many: %d", 3)
    (line,) = written
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "WARNING", "logger": "tests.logs", "message": "so many: 3"}


def test_a_line_says_what_it_is_about_and_nothing_that_nobody_knows(lines):
    logger, written = lines
    describe_process(pool="demo", generation=3, pod=None)
    about_acme = About(logger, {"zone": "acme", "tenant": ""})
    about_acme.warning("full", extra={"generation": 4, "key": "not to be shown"})
    about_acme.warning("again")
    about = [{key: line[key] for key in line if key not in ("timestamp", "level", "logger")} for line in written]
    assert about == [
        {"message": "full", "zone": "acme", "pool": "demo", "generation": 4},
        {"message": "again", "zone": "acme", "pool": "demo", "generation": 3},
    ]


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


@pytest.mark.parametrize("tenant", ["acme", "ä", "two words/and=signs", "x" * 200])
def test_a_seal_is_blotted_out_wherever_it_stands(tenant):
    made = seal(new_seal_key(), tenant, "salt")
    for cut in (made, made[:-63]):
        assert without_seals(f"SamplingParams(extra_args={{'tenantzone_seal': '{cut}'}}") == (
            "SamplingParams(extra_args={'tenantzone_seal': '(seal)'}"
        )


def test_what_is_no_seal_stays():
    text = "vLLM 0.32.0 at 127.0.0.1:8000, 1.5 s, salt 5f2b5f2b5f2b5f2b5f2b5f2b5f2b5f2b"
    assert without_seals(text) == text
