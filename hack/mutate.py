"""Breaks the zone core, or the core of the KV-cache manager, on purpose, and names each break that no test noticed.

``mutmut`` does it. It wants packages at the top of the folder that it works in, so they are laid out in a folder of
their own, ``.mutation/``. ``python -m hack.mutate 'tenantzone_runtime.zones.model.quota*'`` breaks one module only,
``--sample 500`` tries that many changes of all, drawn by chance, and ``--part manager`` breaks the manager.
"""

import argparse
import fnmatch
import json
import os
import random
import shutil
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

from hack.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".mutation"
MUTANTS = FOLDER / "mutants"


@dataclass(frozen=True)
class Part:
    """The code to break, and the tests that must notice it."""

    package: str
    folders: tuple[str, ...]
    tests: str
    left_out: tuple[str, ...] = ()
    """Tests that start processes, or compare files that are not copied."""


PARTS = {
    "zones": Part("tenantzone_runtime", ("tenantzone_runtime/zones",), "tests/zones"),
    "manager": Part(
        "tenantzone_manager",
        ("tenantzone_manager/core", "tenantzone_manager/index"),
        "tests/manager",
        left_out=("test_*process.py", "test_published.py", "test_tls.py", "test_token_review.py"),
    ),
}

# What takes five times as long as it did hangs.
# The tests' common fixtures read the version from the file that this becomes.
CONFIG = """
[project]
name = "tenantzone"
version = "{version}"

[tool.mutmut]
source_paths = ["{part.package}"]
only_mutate = {mutated}
also_copy = {copied}
pytest_add_cli_args_test_selection = ["{part.tests}"]
pytest_add_cli_args = {arguments}
timeout_multiplier = 5.0
timeout_constant = 3.0

[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "--import-mode=importlib"
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "session"
asyncio_default_test_loop_scope = "session"
"""

UNNOTICED = {0: "survived", 33: "no test"}
"""Exit codes of mutants that no test notices, or that none runs; with any other code a test fails, or hangs."""


def main() -> None:
    """Run mutmut on a copy of one part, and print what the tests noticed and what not."""
    parser = argparse.ArgumentParser(prog="python -m hack.mutate", description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="names of mutants to try (default: all)")
    parser.add_argument("--part", choices=PARTS, default="zones", help="what is broken (default: %(default)s)")
    parser.add_argument("--sample", type=int, metavar="N", help="try only N of them, drawn by chance")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at once (default: one for each core)")
    arguments = parser.parse_args()
    part = PARTS[arguments.part]
    _lay_out(part)
    chosen = arguments.patterns
    if arguments.sample is not None:
        chosen = _sample(part, chosen or ["*"], arguments.sample, arguments.seed)
        if not chosen:
            parser.error("there is no such change, or none to be tried: give another PATTERN, or a larger --sample")
    environment = os.environ | {"HYPOTHESIS_PROFILE": "mutation"}
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(arguments.processes), *chosen]
    subprocess.run(command, cwd=FOLDER, env=environment, check=True)
    results = _results(part)
    _print_table(results)
    _print_unnoticed(results)


def _lay_out(part: Part) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    packages = ("tenantzone_contract", "tenantzone_runtime", "tenantzone_manager")
    folders = ("bench", "crds", "docs", "hack")
    for package in packages:
        shutil.copytree(ROOT / "runtime" / package, FOLDER / package, ignore=ignored)
    for folder in (*folders, part.tests):
        shutil.copytree(ROOT / folder, FOLDER / folder, ignore=ignored)
    for file in (ROOT / "tests").glob("*.py"):
        shutil.copy(file, FOLDER / "tests")
    config = CONFIG.format(
        version=VERSION,
        part=part,
        mutated=[f"{folder}/*" for folder in part.folders],
        arguments=["-p", "no:cacheprovider", *(f"--ignore-glob=*/{name}" for name in part.left_out)],
        copied=[*(package for package in packages if package != part.package), *folders],
    )
    (FOLDER / "pyproject.toml").write_text(config)


def _sample(part: Part, patterns: list[str], size: int, seed: int) -> list[str]:
    """Names of mutants. With the same seed, a greater sample contains the smaller ones."""
    with chdir(FOLDER):
        names = sorted(
            name
            for folder in part.folders
            for file in Path(folder).rglob("*.py")
            for mutant in mutate_file_contents(str(file), file.read_text()).mutant_names
            if any(fnmatch.fnmatch(name := get_mutant_name(file, mutant), pattern) for pattern in patterns)
        )
    random.Random(seed).shuffle(names)
    return names[:size]


def _results(part: Part) -> dict[str, dict[str, int]]:
    """File → mutant → exit code of the tests, of the mutants that were tried."""
    results = {}
    for file in sorted(file for folder in part.folders for file in (MUTANTS / folder).rglob("*.meta")):
        codes = json.loads(file.read_text())["exit_code_by_key"]
        tried = {name: code for name, code in codes.items() if code is not None}
        if tried:
            results[str(file.relative_to(MUTANTS)).removesuffix(".meta")] = tried
    return results


def _print_table(results: dict[str, dict[str, int]]) -> None:
    width = max(map(len, results), default=0) + 2
    print(f"\n{'file':<{width}}{'mutants':>8}{'noticed':>8}{'':>9}")
    rows = {file: list(codes.values()) for file, codes in results.items()}
    rows["all"] = [code for codes in rows.values() for code in codes]
    for file, codes in rows.items():
        noticed = sum(code not in UNNOTICED for code in codes)
        print(f"{file:<{width}}{len(codes):>8}{noticed:>8}{noticed / len(codes):>9.1%}")


def _print_unnoticed(results: dict[str, dict[str, int]]) -> None:
    with chdir(FOLDER):
        for file, codes in results.items():
            for name, code in codes.items():
                if code in UNNOTICED:
                    diff = get_diff_for_mutant(name, path=file)
                    print(f"\n# {name}: {UNNOTICED[code]}\n{diff}")


if __name__ == "__main__":
    main()
