"""Runs vLLM's tests side by side: with vLLM's classes, and with ours in their place, without a zone and with one."""

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hack.conformance import models
from hack.conformance.comparison import Outcomes, read_outcomes
from hack.conformance.source import vllm_tests
from hack.progress import watch

Plugins = Sequence[str]
"""pytest plugins that put our classes in place; none: vLLM's own are tested."""

TESTS = "tests/v1/core"
SUBSTITUTION = "hack.conformance.substitution"
ONE_ZONE = "hack.conformance.one_zone"

NO_ZONE: Plugins = (SUBSTITUTION,)
WITH_ONE_ZONE: Plugins = (SUBSTITUTION, ONE_ZONE)

_RUN_A_MODEL = (
    "test_reset_prefix_cache_e2e.py",
    "test_scheduler_e2e.py",
    "prefix_cache/test_hybrid_prefix_cache_hit_rate.py",
)
"""They need weights, and start engines in processes of their own, where nothing is replaced."""


def run_sides(folder: Path, sides: Mapping[str, Plugins], arguments: Sequence[str] = (TESTS,)) -> dict[str, Outcomes]:
    """How each test went on each side.

    Args:
        folder: an empty one, for model configs and results.
        sides: what is put in place, by the side's name.
        arguments: pytest's: which tests to run.

    Raises:
        SourceError: vLLM's tests can't be had.
        CommandFailed: the tests can't be run; that some fail is a result.
    """
    tests = vllm_tests()
    models.make(folder / "models")
    with ThreadPoolExecutor(len(sides)) as pool:
        running = {
            name: pool.submit(_run, name, tests, folder, [*arguments, *_loading(plugins)])
            for name, plugins in sides.items()
        }
        return {name: side.result() for name, side in running.items()}


def _loading(plugins: Plugins) -> list[str]:
    return [argument for plugin in plugins for argument in ("-p", plugin)]


def _run(name: str, tests: Path, folder: Path, arguments: Sequence[str]) -> Outcomes:
    outcomes = folder / f"{name}.json"
    settings = ["-c", "pyproject.toml", f"--confcutdir={TESTS}", "-p", "no:cacheprovider", "--tb=short"]
    settings += [f"--ignore={TESTS}/{path}" for path in _RUN_A_MODEL]
    watch(
        name,
        [
            sys.executable,
            "-m",
            "pytest",
            *settings,
            "-p",
            "hack.conformance.recording",
            f"--outcomes={outcomes}",
            *arguments,
        ],
        status=lambda *_: "working",
        worth_saying=lambda line: line.endswith("%]"),
        cwd=tests,
        env=_environment(folder),
    )
    return read_outcomes(outcomes)


def _environment(folder: Path) -> dict[str, str]:
    repository = Path(__file__).parents[2]
    path = [str(repository), str(repository / "runtime"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "HF_HOME": str(folder / "models"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "PYTEST_ADDOPTS": "",
    }
