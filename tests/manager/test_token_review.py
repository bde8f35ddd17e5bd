"""Tokens of service accounts, reviewed by a real API server."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hack.controlplane import Cluster
from tenantzone_manager.server.access import Caller, ReviewedTokens, Unauthenticated
from tenantzone_manager.server.token_review import ApiServerReview

AUDIENCE = "tenantzone-manager"

pytestmark = pytest.mark.controlplane


def token_of(cluster: Cluster, namespace: str, account: str, *options: str) -> str:
    return cluster.kubectl("create", "token", account, "--namespace", namespace, *options).stdout.strip()


@pytest.fixture
def credentials(control_plane: Cluster, namespace: str, tmp_path: Path) -> Path:
    """What the manager's pod has, which may review tokens and nothing else."""
    for account in ("manager", "engine"):
        control_plane.kubectl("create", "serviceaccount", account, "--namespace", namespace)
    reviewer = f"{namespace}:manager"
    control_plane.kubectl(
        "create", "clusterrolebinding", namespace, "--clusterrole=system:auth-delegator", f"--serviceaccount={reviewer}"
    )
    view = ("config", "view", "--raw", "--minify", "--output")
    data = control_plane.kubectl(*view, "jsonpath={.clusters[0].cluster.certificate-authority-data}").stdout
    file = control_plane.kubectl(*view, "jsonpath={.clusters[0].cluster.certificate-authority}").stdout
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(data) if data else Path(file).read_bytes())
    (tmp_path / "token").write_text(token_of(control_plane, namespace, "manager"))
    return tmp_path


async def bound_to_pod(cluster: Cluster, namespace: str) -> str:
    """A token as a pod of the engines has it mounted."""
    container = {"name": "engine", "image": "engine"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "chat-0", "namespace": namespace},
        "spec": {"serviceAccountName": "engine", "containers": [container]},
    }
    cluster.kubectl("create", "--filename", "-", stdin=json.dumps(pod))
    options = (f"--audience={AUDIENCE}", "--bound-object-kind=Pod", "--bound-object-name=chat-0")
    return token_of(cluster, namespace, "engine", *options)


async def test_an_engine_s_token_is_known_by_its_audience(
    control_plane: Cluster, namespace: str, credentials: Path
) -> None:
    review = ApiServerReview(control_plane.server, credentials)
    engine = Caller(f"{namespace}/engine", pool=f"{namespace}/chat")
    tokens = ReviewedTokens(review, AUDIENCE, {engine.name: engine}.get)
    ours = token_of(control_plane, namespace, "engine", f"--audience={AUDIENCE}")
    assert await tokens.authenticate(ours) == engine
    for wrong in (
        token_of(control_plane, namespace, "engine"),
        token_of(control_plane, namespace, "manager", f"--audience={AUDIENCE}"),
        ours[:-4],
        "none",
    ):
        with pytest.raises(Unauthenticated):
            await tokens.authenticate(wrong)
    assert await tokens.authenticate(await bound_to_pod(control_plane, namespace)) == replace(engine, pod="chat-0")
    (credentials / "token").write_text("expired")
    with pytest.raises(OSError, match="did not review"):
        await review(ours, AUDIENCE)
    await review.close()
