"""Runs vLLM's tests side by side: with vLLM's classes, and with ours in their place, without a zone and with one."""

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path

from hack.conformance import models
from hack.conformance.comparison import Outcomes, read_outcomes
from hack.conformance.source import vllm_tests
from hack.controlplane.cache import cache_folder
from hack.locked import PICTURES, with_torchvision
from hack.progress import watch

Plugins = Sequence[str]
"""pytest plugins that put our classes in place; none: vLLM's own are tested."""

TESTS = "tests/v1/core"
SUBSTITUTION = "hack.conformance.substitution"
ONE_ZONE = "hack.conformance.one_zone"

_BLAST = f"{TESTS}/test_priority_scheduler_random.py::test_priority_scheduling_blast"
ALL: Sequence[str] = (TESTS,)
IN_SHORT: Sequence[str] = (
    *ALL,
    *(f"--deselect={_BLAST}[{case}" for case in ("preemption", "standard-1", "standard-5", "standard-None-False")),
)
"""All tests except eleven of the twelve cases of one, each of which runs 20,000 scheduler steps."""

NO_ZONE: Plugins = (SUBSTITUTION,)
WITH_ONE_ZONE: Plugins = (SUBSTITUTION, ONE_ZONE)

_RUNS_A_SERVER = ("prefix_cache/test_hybrid_prefix_cache_hit_rate.py",)
"""A test that starts `vllm serve` in processes without our classes, with a model that reads images and has drafts."""
_IN_A_PROCESS_OF_ITS_OWN = (
    "test_kv_cache_utils.py::test_is_kv_cache_spec_uniform",
    "test_kv_cache_planning.py::test_is_kv_cache_spec_uniform",
)
"""A test in whose process nothing is replaced either; it gives up after some seconds, which a busy machine needs for
its imports. vLLM 0.33 has it in the second file, earlier ones in the first."""


def run_sides(
    folder: Path, sides: Mapping[str, Plugins], arguments: Sequence[str] = ALL, *, keep_stock: bool = False
) -> dict[str, Outcomes]:
    """How each test went on each side.

    Args:
        folder: an empty one, for model configs and results.
        sides: the plugins, by the side's name.
        arguments: pytest's: which tests to run.
        keep_stock: whether the outcomes of a side where nothing is put in place are kept for later runs. They change
            with the environment and with how tests are run, and with nothing of ours.

    Raises:
        SourceError: vLLM's tests can't be had.
        CommandFailed: the tests can't be run; that some fail is a result.
    """
    tests = vllm_tests()
    models.make(folder / "models")
    with ThreadPoolExecutor(len(sides)) as pool:
        running = {
            name: pool.submit(
                _run_once if keep_stock and not plugins else _run, name, tests, folder, [*arguments, *_loading(plugins)]
            )
            for name, plugins in sides.items()
        }
        return {name: side.result() for name, side in running.items()}


def _loading(plugins: Plugins) -> list[str]:
    return [argument for plugin in plugins for argument in ("-p", plugin)]


def _run_once(name: str, tests: Path, folder: Path, arguments: Sequence[str]) -> Outcomes:
    kept = cache_folder() / f"conformance-{_digest(arguments)}.json"
    if not kept.exists():
        _run(name, tests, folder, arguments)
        unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
        shutil.copyfile(folder / f"{name}.json", unfinished)
        unfinished.rename(kept)
    return read_outcomes(kept)


def _digest(arguments: Sequence[str]) -> str:
    """Returns a digest of everything that outcomes with vLLM's own classes depend on."""
    said = [sys.version, *arguments]
    said += sorted(f"{each.name} {each.version}" for each in distributions())
    said += [path.read_text() for path in (*sorted(Path(__file__).parent.glob("*.py")), PICTURES)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def _run(name: str, tests: Path, folder: Path, arguments: Sequence[str]) -> Outcomes:
    outcomes = folder / f"{name}.json"
    settings = ["-c", "pyproject.toml", f"--confcutdir={TESTS}", "-p", "no:cacheprovider", "--tb=short"]
    settings += [f"--ignore={TESTS}/{path}" for path in _RUNS_A_SERVER]
    settings += [f"--deselect={TESTS}/{test}" for test in _IN_A_PROCESS_OF_ITS_OWN]
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
    return os.environ | {
        "HF_HOME": str(folder / "models"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Where a test runs a model, its engine is in the test's own process, where our classes are in place.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "PYTHONPATH": with_torchvision(repository, repository / "runtime"),
        "PYTHONUNBUFFERED": "1",
        "PYTEST_ADDOPTS": "",
    }
