"""The runtime's lines as JSON, and what they never contain; vLLM's own lines are in tests/engine."""

import json
import os
import subprocess
import sys

from tenantzone_runtime.logs import JSON_CONFIG
from tenantzone_runtime.seal import new_seal_key, seal

SEAL = seal(new_seal_key(), "acme", "salt")


def lines_of(program: str, **variables: str) -> list[dict[str, str]]:
    """The output of a process that is configured to write JSON."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from tenantzone_runtime.logs import configure_if_json; configure_if_json(); {program}",
        ],
        env=os.environ | {"VLLM_LOGGING_CONFIG_PATH": str(JSON_CONFIG)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_lines_of_vllm_its_server_and_other_libraries_are_json():
    program = "import logging; [logging.getLogger(name).warning('x') for name in ('vllm.a', 'uvicorn.access', 'torch')]"
    assert [line["logger"] for line in lines_of(program)] == ["vllm.a", "uvicorn.access", "torch"]


def test_vllms_level_is_kept():
    program = "import logging; log = logging.getLogger('vllm.a'); log.debug('quiet'); log.info('loud')"
    assert [line["message"] for line in lines_of(program)] == ["loud"]
    assert [line["message"] for line in lines_of(program, VLLM_LOGGING_LEVEL="debug")] == ["quiet", "loud"]


def test_warnings_and_what_ends_the_process_are_lines_too():
    warning, end = lines_of("import warnings; warnings.warn('old'); raise ValueError('no\\nmore')")
    assert "UserWarning: old" in warning["message"]
    assert (end["level"], end["message"]) == ("CRITICAL", "the process ends: no\nmore")
    assert end["exception"].endswith("ValueError: no\nmore")


def test_lines_say_what_the_process_is_about_unless_they_say_otherwise():
    program = (
        "from tenantzone_runtime.logs import describe_process as describe; import logging; "
        "log = logging.getLogger('vllm.a'); describe(pod='engine-0', pool=None); describe(pool='demo', generation=3); "
        "log.warning('one'); log.warning('two', extra={'generation': 4, 'zone': 'acme'})"
    )
    about = [{name: line.get(name) for name in ("pod", "pool", "generation", "zone")} for line in lines_of(program)]
    assert about == [
        {"pod": "engine-0", "pool": "demo", "generation": 3, "zone": None},
        {"pod": "engine-0", "pool": "demo", "generation": 4, "zone": "acme"},
    ]


def redacted(program: str) -> list[dict[str, str]]:
    start = "import logging; from tenantzone_runtime.engine.patches.redaction import redact_log_records as redact; "
    return lines_of(f"{start}redact(); redact(); log = logging.getLogger('vllm.a'); {program}")


def test_a_seal_in_a_line_is_blotted_out():
    (line,) = redacted(f"log.info('params: %s, %d', {{'tenantzone_seal': '{SEAL}'}}, 3)")
    assert line["message"] == "params: {'tenantzone_seal': '(seal)'}, 3"


def test_a_seal_in_an_exception_is_blotted_out():
    (line,) = redacted(f"\ntry:\n    raise ValueError('{SEAL}')\nexcept ValueError:\n    log.exception('failed')")
    assert line["exception"].endswith("ValueError: (seal)")


def test_a_seal_in_what_ends_the_process_is_blotted_out():
    (line,) = redacted(f"\nraise ValueError('{SEAL}')")
    assert SEAL not in json.dumps(line)
