"""Runs vLLM's tests twice, side by side: with vLLM's classes, and with ours in their place."""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance import models
from conformance.comparison import Outcomes, read_outcomes
from conformance.source import vllm_tests
from progress import watch

TESTS = "tests/v1/core"
SUBSTITUTION = "conformance.substitution"

_RUN_A_MODEL = (
    "test_reset_prefix_cache_e2e.py",
    "test_scheduler_e2e.py",
    "prefix_cache/test_hybrid_prefix_cache_hit_rate.py",
)
"""They need weights, and start engines in processes of their own, where nothing is replaced."""


def run_sides(
    folder: Path, arguments: Sequence[str] = (TESTS,), plugins: Sequence[str] = (SUBSTITUTION,)
) -> tuple[Outcomes, Outcomes]:
    """How each test went with stock classes, and with ours.

    Args:
        folder: an empty one, for model configs and results.
        arguments: pytest's: which tests to run.
        plugins: pytest plugins that put our classes in place.

    Raises:
        SourceError: vLLM's tests can't be had.
        CommandFailed: the tests can't be run; that some fail is a result.
    """
    tests = vllm_tests()
    models.make(folder / "models")
    with ThreadPoolExecutor() as pool:
        sides = [
            pool.submit(_run, name, tests, folder, [*arguments, *_loading(chosen)])
            for name, chosen in (("stock", ()), ("ours", plugins))
        ]
        stock, ours = [side.result() for side in sides]
    return stock, ours


def _loading(plugins: Sequence[str]) -> list[str]:
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
            "conformance.recording",
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
    path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "HF_HOME": str(folder / "models"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "PYTEST_ADDOPTS": "",
    }
