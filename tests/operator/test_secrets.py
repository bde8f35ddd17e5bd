"""A key that is revoked in a Secret ends in the engines at once, if the operator may watch the Secret."""

import base64
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import ControlPlane
from tenantzone_contract.keys.salt import salt_secret_name
from tenantzone_contract.zone_config.identity import SECRETS_HASH_ANNOTATION
from tenantzone_operator.kube.resources import read_pod
from tenantzone_operator.kube.secret_watch import MAX_SECRETS, most_mounted, secrets_hash
from tests.frontend.harness import call, frontend, give_zones
from tests.operator.conftest import MANIFESTS
from tests.operator.fleet import pod_manifest
from tests.operator.kube import eventually
from tests.operator.objects import body
from tests.operator.world import POOL, World, conditions

SECRET = "tenant-keys"


def give_secret(world: World, **keys: str) -> None:
    data = {name: base64.b64encode(key.encode()).decode() for name, key in keys.items()}
    path = f"/api/v1/namespaces/{world.namespace}/secrets"
    if world.kube.get(f"{path}/{SECRET}") is None:
        world.kube.call("POST", path, {"metadata": {"name": SECRET}, "data": data})
    else:
        gone = dict.fromkeys(world.kube.get(f"{path}/{SECRET}")["data"])
        world.kube.merge(f"{path}/{SECRET}", {"data": gone | data})


def add_pod(world: World, name: str, *more: str) -> None:
    """Adds an engine's pod that mounts the Secret and the given ones; nothing runs in it."""
    pod: dict[str, Any] = pod_manifest(name, {"pool": POOL})
    secrets = {"keys": SECRET, **{name: name for name in more}}
    pod["spec"]["volumes"] = [{"name": name, "secret": {"secretName": secret}} for name, secret in secrets.items()]
    world.kube.call("POST", f"/api/v1/namespaces/{world.namespace}/pods", pod)


def reported(world: World, pod: str) -> str | None:
    found = world.kube.get(f"/api/v1/namespaces/{world.namespace}/pods/{pod}")
    assert found is not None
    return (found["metadata"].get("annotations") or {}).get(SECRETS_HASH_ANNOTATION)


def await_hash(world: World, other_than: str | None = None) -> str:
    def look() -> str:
        found = reported(world, "engine-0")
        assert found not in (None, other_than)
        return found

    return eventually(look)


def let_watch(world: World) -> None:
    world.kubectl("apply", "--filename", str(MANIFESTS / "engine" / "secret-watch.yaml"))


@contextmanager
def kubelet(world: World, folder: Path) -> Iterator[None]:
    """Projects the pod's volumes with the stand-in, which looks at a Secret only once a minute unless notified."""
    command = [
        *(sys.executable, "-m", "hack.demo.kubelet", "--kubeconfig", str(world.cluster.kubeconfig)),
        *("--namespace", world.namespace, "--pod", "engine-0", "--volumes", str(folder)),
        *("--ip", "127.0.0.1", "--health", "http://127.0.0.1:1/none"),
    ]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.mark.controlplane
def test_a_key_that_is_revoked_in_a_secret_ends_at_once(world: World, tmp_path: Path):
    let_watch(world)
    give_secret(world, acme="acme-key", burst="burst-key")
    world.add_pool()
    add_pod(world, "engine-0")
    give_zones(tmp_path, "acme", "burst")
    with kubelet(world, tmp_path):
        before = await_hash(world)
        eventually(lambda: (tmp_path / "keys" / "burst").read_text())
        app = frontend(tmp_path)
        assert call(app, body={"prompt": "a"}, key="burst-key").status_code == 200

        give_secret(world, acme="acme-key")

        await_hash(world, before)
        # Without a notification the stand-in would look after a minute.
        eventually(lambda: call(app, body={"prompt": "a"}, key="burst-key").status_code == 401, timeout=30)
        assert call(app, body={"prompt": "a"}, key="acme-key").status_code == 200


@pytest.mark.controlplane
def test_without_the_right_it_goes_by_kubelets_pace_and_the_pool_says_so(world: World):
    if not isinstance(world.cluster, ControlPlane):
        pytest.skip("a cluster that was named may give the operator any right")
    give_secret(world, acme="acme-key")
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    world.add_engine()
    world.await_ready("acme")
    assert "kubelet's next periodic sync" not in conditions(world.pool())["IdentityEnforced"]["message"]
    add_pod(world, "engine-with-keys", salt_secret_name(POOL))

    eventually(lambda: says_pace(world))
    assert reported(world, "engine-with-keys") is None
    world.await_ready("acme")


def says_pace(world: World) -> bool:
    found = conditions(world.pool())["IdentityEnforced"]
    return found["status"] == "True" and f"the Secret {SECRET} take effect only at kubelet's" in found["message"]


def mounting(*secrets: str):
    volumes = [{"secret": {"secretName": name}} for name in secrets]
    projected = {"projected": {"sources": [{"secret": {"name": "inner"}}, {"serviceAccountToken": {}}]}}
    return read_pod(body("engine-0", spec={"volumes": [*volumes, projected, {"emptyDir": {}}]}))


def hash_of(versions: Mapping[str, str], *unwatched: str) -> str:
    return secrets_hash(mounting("b", "a"), versions, unwatched)


def test_all_secrets_of_a_pod_are_seen():
    assert mounting("b", "a", "b").secrets == ("a", "b", "inner")
    assert read_pod(body("engine-0")).secrets == ()


def test_a_hash_is_of_all_that_a_pod_mounts_and_that_may_be_watched():
    known = {"a": "u/1", "b": "u/2", "inner": "", "other": "u/9"}
    whole = hash_of(known)
    assert whole.startswith("sha256:")
    assert hash_of(known | {"other": "u/10"}) == whole
    assert len({whole, hash_of(known | {"a": "u/3"}), hash_of(known | {"inner": "u/1"}), hash_of(known, "b")}) == 4
    assert hash_of({"a": "u/1", "b": "u/2"}) == "", "what is not known yet is waited for"
    assert hash_of({}, "a", "b", "inner") == ""


def test_an_odd_pods_secrets_displace_none_that_most_pods_mount():
    odd = mounting(*(f"a-{number}" for number in range(MAX_SECRETS)))
    names = most_mounted([mounting("keys", "salt"), odd, mounting("keys", "salt"), mounting("keys")])
    assert names[:3] == ["inner", "keys", "salt"]
    assert len(names) == len(set(names)) == 3 + MAX_SECRETS
