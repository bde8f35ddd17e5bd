"""Breaks the zone core on purpose, and names each break that no test noticed.

``mutmut`` does it. It wants packages at the top of the folder that it works in, so they are laid out in a folder of
their own, ``.mutation/``. ``python -m hack.mutate 'tenantzone_runtime.zones.quota*'`` breaks one module only.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant

from hack.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".mutation"
MUTANTS = FOLDER / "mutants"
CORE = "tenantzone_runtime/zones"

# All tests take some ten seconds. What takes five times as long as it did hangs.
# The tests' common fixtures read the version from the file that this becomes.
CONFIG = f"""
[project]
name = "tenantzone"
version = "{VERSION}"

[tool.mutmut]
source_paths = ["tenantzone_runtime"]
only_mutate = ["{CORE}/*"]
also_copy = ["tenantzone_contract", "bench", "crds", "docs", "hack"]
pytest_add_cli_args_test_selection = ["tests/zones"]
pytest_add_cli_args = ["-p", "no:cacheprovider"]
timeout_multiplier = 5.0
timeout_constant = 3.0

[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "--import-mode=importlib"
"""

UNNOTICED = {0: "survived", 33: "no test"}
"""Exit codes of mutants that no test notices, or that none runs; with any other code a test fails, or hangs."""


def main() -> None:
    """Run mutmut on a copy of the zone core, and print what the tests noticed and what not."""
    _lay_out()
    environment = os.environ | {"HYPOTHESIS_PROFILE": "mutation"}
    command = [sys.executable, "-m", "mutmut", "run", *sys.argv[1:]]
    subprocess.run(command, cwd=FOLDER, env=environment, check=True)
    results = _results()
    _print_table(results)
    _print_unnoticed(results)


def _lay_out() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("tenantzone_contract", "tenantzone_runtime"):
        shutil.copytree(ROOT / "runtime" / package, FOLDER / package, ignore=ignored)
    for folder in ("bench", "crds", "docs", "hack", "tests/zones"):
        shutil.copytree(ROOT / folder, FOLDER / folder, ignore=ignored)
    for file in (ROOT / "tests").glob("*.py"):
        shutil.copy(file, FOLDER / "tests")
    (FOLDER / "pyproject.toml").write_text(CONFIG)


def _results() -> dict[str, dict[str, int]]:
    """Module → mutant → exit code of the tests, of the mutants that were tried."""
    results = {}
    for file in sorted((MUTANTS / CORE).rglob("*.meta")):
        codes = json.loads(file.read_text())["exit_code_by_key"]
        tried = {name: code for name, code in codes.items() if code is not None}
        if tried:
            results[str(file.relative_to(MUTANTS / CORE)).removesuffix(".py.meta")] = tried
    return results


def _print_table(results: dict[str, dict[str, int]]) -> None:
    print(f"\n{'module':<24}{'mutants':>8}{'noticed':>8}{'':>9}")
    rows = {module: list(codes.values()) for module, codes in results.items()}
    rows["all"] = [code for codes in rows.values() for code in codes]
    for module, codes in rows.items():
        noticed = sum(code not in UNNOTICED for code in codes)
        print(f"{module:<24}{len(codes):>8}{noticed:>8}{noticed / len(codes):>9.1%}")


def _print_unnoticed(results: dict[str, dict[str, int]]) -> None:
    with chdir(FOLDER):
        for module, codes in results.items():
            for name, code in codes.items():
                if code in UNNOTICED:
                    diff = get_diff_for_mutant(name, path=f"{CORE}/{module}.py")
                    print(f"\n# {name}: {UNNOTICED[code]}\n{diff}")


if __name__ == "__main__":
    main()
