"""A newer vLLM's changes are reported where they affect zones, and nowhere else."""

from pathlib import Path

import pytest

from hack.vllm_changes.comparison import changes
from hack.vllm_changes.package import Package
from hack.vllm_changes.touched import Touched, touched

SCHEDULER = '''
class Scheduler:
    def __init__(self):
        self.failed: set[str] = set()
        self.unknown_here: int = 0

    def schedule(self, throttle=False):
        """Make a step."""
        return self.failed

    def of_no_use(self):
        return 1
'''
BEFORE = {
    "_version.py": "__version__ = version = '1.0'",
    "v1/core/scheduler.py": SCHEDULER,
    "entrypoints/old_args.py": "def make_parser():\n    return '--old'\n",
    "entrypoints/routes.py": '@router.get(\n    "/stays")\n@router.post("/goes")\n',
    "engine/arg_utils.py": 'add("--stays")\nadd("--goes")\n',
}
OF = Touched(
    imported=frozenset({("vllm.entrypoints.old_args", "make_parser"), ("vllm.v1.core.scheduler", "Scheduler")}),
    modules=frozenset({"vllm.v1.core.scheduler"}),
    names=frozenset({"schedule", "failed"}),
)


def package(folder: Path, **changed: str) -> Package:
    for name, text in (BEFORE | changed).items():
        (folder / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "vllm" / name).write_text(text)
    return Package(folder / "vllm")


@pytest.fixture
def reported(tmp_path):
    """The report on a vLLM with these files changed, by heading."""

    def reported(moved: dict[str, str] | None = None, **changed: str) -> dict[str, list[str]]:
        old, new = package(tmp_path / "old"), package(tmp_path / "new", **changed)
        for source, target in (moved or {}).items():
            (new.folder / source).rename(new.folder / target)
        first, *sections = "\n".join(changes(old, new, OF)).split("\n\n")
        assert first.startswith("vLLM 1.0 and ")
        by_title = {}
        for section in sections:
            title, *lines = section.splitlines()
            by_title[title.partition(":")[0]] = [line.strip() for line in lines]
        return by_title

    return reported


def test_of_two_that_are_alike_nothing_is_reported(reported):
    assert set(map(len, reported().values())) == {0}


def test_what_is_imported_and_has_moved_is_reported_with_where_it_is(reported):
    moved = reported({"entrypoints/old_args.py": "entrypoints/new_args.py"})
    assert moved["imports that are gone"] == [
        "vllm.entrypoints.old_args.make_parser, now in: vllm.entrypoints.new_args"
    ]


def test_an_attribute_that_becomes_something_else_is_reported_and_an_untouched_one_is_not(reported):
    other = SCHEDULER.replace("set[str] = set()", "dict[str, int] = {}").replace(
        "unknown_here: int", "unknown_here: str"
    )
    fields = reported(**{"v1/core/scheduler.py": other})["fields that are others"]
    assert fields == ["vllm.v1.core.scheduler.Scheduler.failed: set[str] → dict[str, int]"]


def test_an_attribute_that_is_gone_is_reported(reported):
    other = SCHEDULER.replace("failed", "failures").replace("schedule(", "plan(")
    assert reported(**{"v1/core/scheduler.py": other})["attributes that are gone"] == ["failed", "schedule"]


def test_code_is_reported_where_it_does_something_else_and_not_where_it_says_something_else(reported):
    said = SCHEDULER.replace("Make a step.", "Make one step.").replace("return 1", "return 2")
    (code,) = (title for title in reported() if title.startswith("code"))
    assert reported(**{"v1/core/scheduler.py": said})[code] == []
    done = reported(**{"v1/core/scheduler.py": SCHEDULER.replace("throttle=False", "throttle=True")})[code]
    assert done[0] == "vllm.v1.core.scheduler.Scheduler.schedule"
    assert "-def schedule(self, throttle=False):" in done
    assert "+def schedule(self, throttle=True):" in done


def test_routes_flags_and_modules_that_come_and_go_are_reported(reported):
    found = reported(
        **{
            "entrypoints/routes.py": '@router.get("/stays")\n@router.websocket("/comes")\n',
            "engine/arg_utils.py": 'add("--stays")\nadd("--comes")\n',
            "v1/core/more.py": "",
        }
    )
    assert found["routes"] == ["- POST /goes", "+ websocket /comes"]
    assert found["flags"] == ["- --goes", "+ --comes"]
    assert found["modules of the core"] == ["+ vllm.v1.core.more"]


def test_what_the_adapter_does_is_read_from_the_adapter():
    found = touched()
    assert ("vllm.v1.core.sched.async_scheduler", "AsyncScheduler") in found.imported
    assert "vllm.v1.core.block_pool" in found.modules
    assert {"get_computed_blocks", "allocate_slots", "grammar_compile_error_reqs"} <= found.names
