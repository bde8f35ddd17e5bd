"""Which tests must share a process when several run them side by side (``pytest -n``), and which of them begin.

A pytest plugin. Tests that share a server go to one process, which starts it once; so do those of a module, because
they share the module's state. The longest groups begin, and the short ones fill the remaining time of the processes.
"""

from collections.abc import Generator

import pytest

_GROUPS = (
    "operator, from test_lies on",
    "engine",
    "tests/bench/test_gpu.py",
    "engines with tiers",
    "operator",
    "node",
    "tests/conformance/test_conformance.py",
    "tests/images/test_other_images.py",
    "tests/images/test_images.py",
    "faults",
    "kubectl plugin",
    "control plane",
)
"""Groups in the order in which they begin; then the other modules, each its own group."""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    yield
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _group(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    folder = item.nodeid.rpartition("/")[0]
    if folder == "tests/node":
        # A machine has room for one node. The first one builds kubelet and CoreDNS for minutes where no cache has them.
        return "node"
    if item.get_closest_marker("engine") or "stock" in fixtures:
        return "engine"
    if "cache_manager" in fixtures:
        return "engines with tiers"
    if "control_plane" in fixtures:
        # Parts of about the same length; one more control plane costs three seconds.
        if folder == "tests/operator":
            return "operator" if item.nodeid < "tests/operator/test_lies" else "operator, from test_lies on"
        return "faults" if folder == "tests/operator/faults" else "control plane"
    if "clinic" in fixtures:
        return "kubectl plugin"
    return item.nodeid.split("::")[0]


def _turn(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    return _GROUPS.index(mark.args[0]) if mark.args[0] in _GROUPS else len(_GROUPS)
