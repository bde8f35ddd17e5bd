"""An install has what its extras need and no more: the core works without the packages of manager, replay and journal.

Each test of a program runs it in a process in which only the packages of some extras, with all that these need, can be
imported, as in an environment that has nothing else.
"""

import ast
import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tenantzone_contract.extras import needs_extra

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OWN = {path.name: path for part in ("operator", "runtime") for path in (REPOSITORY / part).glob("tenantzone_*")}
PROVIDED: dict[str, list[str]] = json.loads(
    subprocess.check_output(
        [
            sys.executable,
            "-I",
            "-c",
            "import json; from importlib.metadata import packages_distributions as provided\n"
            "print(json.dumps(provided()))",
        ]
    )
)
"""Distributions by the top-level module that they provide, as a new process finds them.

Once a process has imported setuptools, it also finds the packages in setuptools' own folder.
"""

OF_VLLM = {
    "PIL", "av", "cv2", "numpy", "opentelemetry", "pybase64", "soundfile", "torch", "uvicorn", "vllm", "xgrammar",
}  # fmt: skip
"""Modules that an engine has because vLLM needs them."""
WITHOUT_EXTRA = {"mooncake"}
"""Modules of a client that a user installs alone, because there are two of it."""
EXTRAS_OF = {
    "tenantzone_contract": [],
    "tenantzone_contract/bounded_http.py": ["operator", "manager"],
    "tenantzone_contract/cache/s3.py": ["s3", "manager"],
    "tenantzone_cli": [],
    "tenantzone_operator": ["operator"],
    "tenantzone_operator/kube/credentials/kubeconfig.py": ["operator,kubeconfig"],
    "tenantzone_manager": ["manager"],
    "tenantzone_runtime": ["runtime"],
    "tenantzone_runtime/journal": ["journal"],
    "tenantzone_runtime/shared/storage/s3.py": ["runtime,s3"],
    "tenantzone_runtime/zones": [],
    "tenantzone_replay": ["replay"],
    "tenantzone_replay/search.py": ["advice"],
}
"""Installs by file or folder, folders first. Each of the installs must have all that the file imports."""


def requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    """Requirements as pip reads them, with the project's own extras replaced by their contents."""
    for text in texts:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            yield from requirements(line for extra in requirement.extras for line in EXTRAS[extra])
        else:
            yield requirement


def names(texts: Iterable[str]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements(texts)}


def installed_with(*extras: str) -> set[str]:
    """Distributions that an install with these extras brings, with all that they need themselves."""
    waiting = [
        (requirement.name, frozenset(requirement.extras))
        for requirement in requirements(
            [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
        )
    ]
    found: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (canonicalize_name(name), wanted) in found:
            continue
        found.add((canonicalize_name(name), wanted))
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # of another platform, or another Python
        for requirement in map(Requirement, needed):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return {name for name, _ in found}


def modules_outside(distributions: set[str], *own: str) -> list[str]:
    """Top-level modules of all other installed distributions, and our packages but these."""
    others = [
        module
        for module, providers in PROVIDED.items()
        if module not in OWN and not any(canonicalize_name(provider) in distributions for provider in providers)
    ]
    return [*others, *(set(OWN) - set(own))]


HIDE = """
import json, sys

hidden = set(json.loads(sys.argv.pop(1)))


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *where):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, *where)

    def __getattr__(self, name):
        return getattr(self.finder, name)


# Modules that site-packages' own start-up files have loaded are no part of an install.
for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
    del sys.modules[name]
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
RUN = """
from importlib import import_module

program, *sys.argv[1:] = json.loads(sys.argv[1])
sys.argv[0] = program
sys.exit(import_module(program + ".__main__").main())
"""
IMPORT = """
from importlib import import_module

for name in json.loads(sys.argv[1]):
    import_module(name)
print(json.dumps([name for name in sys.modules if name.startswith("tenantzone_")]))
"""


def python(code: str, hidden: list[str], argument: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE + code, json.dumps(hidden), json.dumps(argument)],
        env=os.environ | {"PYTHONPATH": ":".join(str(REPOSITORY / part) for part in ("operator", "runtime"))},
        capture_output=True,
        text=True,
    )


def imported(modules: Iterable[str], hidden: list[str]) -> set[str]:
    """Imports modules in a process without the hidden ones, and returns the names of our modules that this loads."""
    done = python(IMPORT, hidden, sorted(modules))
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_of(package: str, *without: str) -> Iterator[str]:
    """A package's modules, without those whose name begins with one of some names."""
    for path in OWN[package].rglob("*.py"):
        parts = path.relative_to(OWN[package].parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not name.startswith(without or "-"):
            yield name


# What pyproject.toml declares


def test_no_core_dependency_belongs_to_an_extra():
    core = names(PROJECT["dependencies"])
    assert core == {"pydantic", "msgspec"}
    assert {extra: core & names(texts) for extra, texts in EXTRAS.items()} == {extra: set() for extra in EXTRAS}


def test_the_parts_of_the_core_need_no_package_of_the_manager_or_of_advice_alone():
    for extra, own in (
        ("operator", {"grpcio", "redis", "botocore", "optuna"}),
        ("runtime", {"redis", "botocore", "optuna"}),
    ):
        assert names(EXTRAS[extra]) & own == set()


def imports(path: Path) -> set[str]:
    """Top-level modules that a file imports, anywhere in it, other than Python's own and ours."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - set(OWN)


def extras_of(path: str) -> tuple[str, list[str]]:
    """The last entry that has a path, and its installs."""
    entry = [entry for entry in EXTRAS_OF if path == entry or path.startswith(entry + "/")][-1]
    return entry, EXTRAS_OF[entry]


def undeclared(contents: Mapping[str, set[str]]) -> list[str]:
    """Imports of files by their path that one of the extras of the file does not declare."""
    core = names(PROJECT["dependencies"]) | {"pydantic-core"}  # of pydantic's own version
    problems = []
    for path, modules in contents.items():
        entry, extras = extras_of(path)
        with_vllm = path.startswith(("tenantzone_runtime/engine/", "tenantzone_runtime/frontend/"))
        for module in modules - WITHOUT_EXTRA - (OF_VLLM if with_vllm else set()):
            providers = {canonicalize_name(provider) for provider in PROVIDED.get(module, [module])}
            if providers & core:
                continue
            lacking = [extra for extra in extras if not providers & names([f"{PROJECT['name']}[{extra}]"])]
            if lacking or not extras:
                problems.append(f"{path} imports {module}: add it to the extras {lacking} or see {entry} in EXTRAS_OF")
    return problems


def test_each_extra_declares_what_its_package_imports():
    contents = {
        str(path.relative_to(folder.parent)): imports(path)
        for folder in OWN.values()
        for path in folder.rglob("*.py")
        if "generated" not in path.parts
    }
    assert {extras_of(path)[0] for path in contents} == set(EXTRAS_OF), "an entry names no file"
    assert undeclared(contents) == []


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("tenantzone_contract/text.py", "msgspec_of_another_name"),
        ("tenantzone_cli/top.py", "aiohttp"),
        ("tenantzone_operator/app.py", "botocore"),
        ("tenantzone_manager/app.py", "kopf"),
        ("tenantzone_runtime/journal/bill.py", "prometheus_client"),
        ("tenantzone_runtime/zones/tenancy.py", "numpy"),
        ("tenantzone_replay/search_of_traces.py", "optuna"),
    ],
)
def test_an_import_that_no_extra_declares_is_found(path: str, module: str):
    (problem,) = undeclared({path: {module}})
    assert problem.startswith(f"{path} imports {module}: ")


# What runs where nothing else is installed


@pytest.mark.parametrize("command", ["top", "explain", "doctor", "storage", "salt", "purge", "migrate"])
def test_the_kubectl_plugin_needs_the_core_alone(command: str):
    hidden = modules_outside(installed_with(), "tenantzone_cli", "tenantzone_contract")
    done = python(RUN, hidden, ["tenantzone_cli", command, "--help"])
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout


def test_each_module_of_the_kubectl_plugin_needs_the_core_alone():
    hidden = modules_outside(installed_with(), "tenantzone_cli", "tenantzone_contract")
    imported(modules_of("tenantzone_cli"), hidden)


def test_the_operator_needs_its_own_extra_alone():
    hidden = modules_outside(installed_with("operator"), "tenantzone_operator", "tenantzone_contract")
    assert {"botocore", "grpc", "kubernetes", "optuna", "redis", "vllm"} <= set(hidden)
    imported(modules_of("tenantzone_operator", "tenantzone_operator.kube.credentials.kubeconfig"), hidden)
    assert python(RUN, hidden, ["tenantzone_operator", "--help"]).returncode == 0


def test_the_journal_needs_its_own_extra_alone():
    hidden = modules_outside(installed_with("journal"), "tenantzone_runtime", "tenantzone_contract")
    assert {"prometheus_client", "vllm", "yaml"} <= set(hidden)
    imported(modules_of("tenantzone_runtime", *_BUT_THE_JOURNAL), hidden)
    assert python(RUN, hidden, ["tenantzone_runtime", "journal", "--help"]).returncode == 0


_BUT_THE_JOURNAL = tuple(
    f"tenantzone_runtime.{path.stem}" for path in OWN["tenantzone_runtime"].iterdir() if path.stem != "journal"
)


def test_the_manager_needs_its_own_extra_alone():
    hidden = modules_outside(installed_with("manager"), "tenantzone_manager", "tenantzone_contract")
    assert {"kopf", "optuna", "vllm", "yaml"} <= set(hidden)
    imported(modules_of("tenantzone_manager"), hidden)


ENGINE = [
    "commands.serve",
    "commands.hand_down",
    "engine.plugin",
    "engine.launch",
    "engine.core.scheduling",
    "frontend.middleware",
]
"""Modules through which an engine starts: the commands, and what vLLM loads by name."""


def test_an_engine_loads_neither_manager_nor_replay_nor_journal():
    hidden = modules_outside(
        installed_with("runtime") | installed_with("cpu"), "tenantzone_runtime", "tenantzone_contract"
    )
    hidden += ["botocore", "optuna", "redis"]
    loaded = imported([f"tenantzone_runtime.{module}" for module in [*ENGINE, "housekeeping.service"]], hidden)
    assert [name for name in loaded if name.startswith("tenantzone_runtime.journal")] == []


# What says how to install it


@pytest.mark.parametrize(
    ("program", "arguments", "extra"),
    [
        ("manager", ["--index", "index.db", "--anyone"], "manager"),
        ("operator", [], "operator"),
        ("replay", ["compare", "trace.jsonl"], "cpu,replay"),
        ("replay", ["advise", "trace.jsonl"], "cpu,replay"),
    ],
)
def test_a_program_whose_extra_is_missing_names_the_command_that_installs_it(program, arguments, extra, tmp_path):
    own = {f"tenantzone_{program}", "tenantzone_contract", "tenantzone_runtime"}
    (tmp_path / "trace.jsonl").write_text("")
    done = python(RUN, modules_outside(installed_with(), *own), [f"tenantzone_{program}", *arguments])
    assert done.returncode == 1
    assert done.stderr.startswith(f"tenantzone-{program}: the package ")
    assert done.stderr.endswith(f" is not installed; run pip install 'tenantzone[{extra}]'\n")
    assert done.stderr.count("\n") == 1


def test_a_module_that_an_installed_package_lacks_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match=r"pydantic\.of_another_version"), needs_extra("program", "manager"):
        importlib.import_module("pydantic.of_another_version")


def test_a_module_of_a_namespace_package_may_be_missing_because_of_an_extra(tmp_path, monkeypatch):
    (tmp_path / "shared_namespace").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match="the package shared_namespace"), needs_extra("program", "manager"):
        importlib.import_module("shared_namespace.part")


def test_a_module_that_a_package_in_a_namespace_lacks_is_no_missing_extra(tmp_path, monkeypatch):
    (tmp_path / "other_namespace" / "installed").mkdir(parents=True)
    (tmp_path / "other_namespace" / "installed" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("other_namespace.installed.part", "__main__.part"):
        with pytest.raises(ModuleNotFoundError), needs_extra("program", "manager"):
            importlib.import_module(module)


def test_advice_without_optuna_names_the_command_that_installs_it():
    done = python(RUN, ["optuna"], ["tenantzone_replay", "advise", "missing.jsonl"])
    assert (done.returncode, done.stderr) == (
        1,
        "tenantzone-replay: advice needs Optuna; run pip install 'tenantzone[advice]'\n",
    )


def test_a_replay_next_to_an_engine_does_not_name_another_engine():
    done = python(RUN, ["yaml"], ["tenantzone_replay", "compare", "missing.jsonl"])
    assert done.stderr == "tenantzone-replay: the package yaml is not installed; run pip install 'tenantzone[replay]'\n"
