"""What ``kubectl get tz,zp,kvs -o wide`` shows for objects in an unwanted state; ``-s`` prints it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane import Cluster
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.manager_site import ManagerSite, site_in
from tests.operator.world import World, conditions, world_in

pytestmark = pytest.mark.controlplane


@pytest.fixture
def site(
    control_plane: Cluster, kube: Kube, operator_kubeconfig: Path, tmp_path: Path
) -> Iterator[tuple[ManagerSite, Operator]]:
    with site_in(control_plane, kube, tmp_path) as made:
        flags = ("--manager-url", made.manager.url, "--manager-token-file", str(made.manager.token_file))
        operator = Operator(operator_kubeconfig, tmp_path / "operator.log", "--no-leader-elect", *flags)
        operator.start()
        operator.await_running()
        yield made, operator
        assert operator.stop() == 0
    assert "Traceback" not in operator.log, operator.log


@pytest.fixture
def world(control_plane: Cluster, kube: Kube, namespace: str, site: tuple[ManagerSite, Operator]) -> Iterator[World]:
    with world_in(control_plane, kube, namespace) as made:
        yield made


class Table:
    """kubectl's output for several kinds: for each a line of headers, with cells below them."""

    def __init__(self, text: str) -> None:
        self._rows: dict[str, tuple[str, str]] = {}
        header = ""
        for line in text.splitlines():
            if line.startswith("NAME "):
                header = line
            elif line:
                self._rows[line.split()[0].partition("/")[2]] = header, line

    def cell(self, name: str, column: str) -> str:
        """Returns the cell below a header in the row of an object."""
        header, row = self._rows[name]
        begin = re.search(rf"(?<!\S){column}(\s+|$)", header)
        assert begin is not None, f"{header} has no {column}"
        end = None if begin.end() == len(header) else begin.end()
        return row[begin.start() : end].strip()


def test_each_object_says_in_its_row_what_is_wrong(
    site: tuple[ManagerSite, Operator], world: World, capsys: pytest.CaptureFixture[str]
):
    manager_site = site[0]
    world.add_pool()
    world.add_zone("acme", reserved=100)
    world.add_engine(blocks=1000)
    world.await_ready("acme")
    world.add_zone("mixed", reserved=900, limit="1%")
    world.add_pool("second", selector={"matchLabels": {"pool": "demo"}})
    world.add_zone("elsewhere", pool="second", reserved=10)
    world.add_pool("empty")
    world.add_zone("early", pool="empty", reserved=500)
    place = manager_site.disk("nfs")
    manager_site.create("KVStorage", "nfs-again", type="FileSystem", fileSystem={"path": str(place)})

    world.await_condition("mixed", "Accepted", "False")
    world.await_condition("early", "Accepted", "True", "AcceptedProvisionally")
    eventually(lambda: conditions(world.pool())["SelectorOverlaps"]["status"] == "True")
    eventually(lambda: conditions(world.pool("second"))["SelectorOverlaps"]["status"] == "True")
    for name in ("nfs", "nfs-again"):
        manager_site.condition("KVStorage", name, "PlaceShared", "True")
    world.await_condition("elsewhere", "Ready", "False")
    shown = world.kubectl("get", "tz,zp,kvs", "--output", "wide").stdout
    with capsys.disabled():
        print(f"\n{shown}")
    manager_site.delete("KVStorage", "nfs-again")
    manager_site.delete("KVStorage", "nfs")
    table = Table(shown)
    accepted = {name: table.cell(name, "ACCEPTED") for name in ("acme", "early", "elsewhere", "mixed")}
    assert accepted == {
        "acme": "Accepted",
        "early": "AcceptedProvisionally",
        "elsewhere": "AcceptedProvisionally",
        "mixed": "Invalid",
    }
    assert {name: table.cell(name, "READY") for name in accepted} == dict.fromkeys(accepted, "False") | {"acme": "True"}
    assert table.cell("mixed", "MESSAGE").startswith("limit (1%, which is 10 blocks) must not be below reserved (900")
    assert "which is older and owns them" in table.cell("elsewhere", "MESSAGE")
    overlaps = {name: table.cell(name, "OVERLAPS") for name in ("demo", "second", "empty")}
    assert overlaps == {"demo": "True", "second": "True", "empty": ""}
    assert [table.cell(name, "PLACESHARED") for name in ("nfs", "nfs-again")] == ["True", "True"]
    assert [table.cell(name, "READY") for name in ("nfs", "nfs-again")] == ["True", "False"]
    assert "whose blocks nfs-again would overwrite" in table.cell("nfs-again", "MESSAGE")
