"""A separate control plane for these tests: they install and remove what others rely on."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from hack.controlplane import ControlPlane
from hack.manifests.schemas import describes_its_kinds, write_schemas
from hack.manifests.tools import monitoring_definitions
from tests.manifests.rendering import OVERLAYS, PROJECT, Objects, kustomize, template
from tests.operator.kube import eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the kinds of the Prometheus Operator, and none of ours; each module has its own."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as made:
        for file in monitoring_definitions():
            made.kubectl("apply", "--server-side", "--filename", str(file))
        yield made


@pytest.fixture(scope="module")
def cluster_with_kinds(cluster: ControlPlane) -> ControlPlane:
    """The same with our kinds."""
    crds = str(PROJECT / "crds")
    cluster.kubectl("apply", "--server-side", "--filename", crds)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    return cluster


@pytest.fixture(scope="module")
def schemas(cluster_with_kinds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Schemas for kubeconform, of all kinds that the cluster has."""
    folder = tmp_path_factory.mktemp("schemas")
    eventually(lambda: describes_its_kinds(cluster_with_kinds))
    write_schemas(cluster_with_kinds, folder)
    return folder


@pytest.fixture(scope="session")
def rendered() -> Mapping[str, Objects]:
    """All shipped manifests, in the form that their users get."""
    overlays = {name: kustomize(folder) for name, folder in OVERLAYS.items()}
    charts = {f"chart-with-{part}": template({part: {"enabled": True}}) for part in ("monitoring", "manager")}
    return overlays | {"chart": template()} | charts


@pytest.fixture(scope="session")
def rendered_folder(rendered: Mapping[str, Objects], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as files."""
    folder = tmp_path_factory.mktemp("rendered")
    for name, objects in rendered.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(objects.values()))
    return folder
