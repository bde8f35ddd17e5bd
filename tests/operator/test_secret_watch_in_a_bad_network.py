"""The versions of a pool's Secrets are known correctly, whatever happens to their watches."""

import logging
from collections.abc import Iterator

import pytest

from hack.controlplane import Cluster, ControlPlane
from hack.harness.proxy import BROKEN, Faults, Proxy, Refusal, error_event
from tenantzone_operator.kube import secret_watch
from tenantzone_operator.kube.resources import Secret, read_pod, read_secret
from tenantzone_operator.kube.secret_watch import SecretWatches
from tenantzone_operator.logs import About
from tests.operator.conftest import MANIFESTS
from tests.operator.kube import Kube
from tests.operator.objects import body
from tests.operator.watched_pods import Pods

pytestmark = pytest.mark.controlplane

SECRET = "tenant-keys"
POD = read_pod(body("engine-0", spec={"volumes": [{"secret": {"secretName": SECRET}}]}))


class Secrets:
    """One Secret, as an administrator changes it and as the watch sees it."""

    def __init__(self, kube: Kube, pods: Pods) -> None:
        self.changes = 0
        self.watches = SecretWatches(pods.key[0], pods.api, self._count, About(logging.getLogger(__name__), {}))
        self._kube = kube
        self._pods = pods
        self._path = f"/api/v1/namespaces/{pods.key[0]}/secrets"
        kube.call("POST", self._path, {"metadata": {"name": SECRET}})

    def _count(self) -> None:
        self.changes += 1

    def annotate(self, value: str) -> None:
        self._kube.merge(f"{self._path}/{SECRET}", {"metadata": {"annotations": {"value": value}}})

    def delete(self) -> None:
        self._kube.call("DELETE", f"{self._path}/{SECRET}")

    @property
    def hash(self) -> str:
        return self.watches.hash_for(POD)

    async def await_hash(self, *others: str) -> str:
        """Waits until the hash is known and differs from the others, and returns it."""
        await self._pods.until(lambda: self.hash not in ("", *others))
        return self.hash


@pytest.fixture
def secrets(control_plane: Cluster, kube: Kube, pods: Pods) -> Iterator[Secrets]:
    if not isinstance(control_plane, ControlPlane):
        pytest.skip("a cluster that was named may give the operator any right")
    role = str(MANIFESTS / "engine" / "secret-watch.yaml")
    control_plane.kubectl("apply", "--namespace", pods.key[0], "--filename", role)
    made = Secrets(kube, pods)
    yield made
    made.watches.stop()


async def test_each_change_has_another_hash_and_so_has_the_deletion(secrets: Secrets):
    secrets.watches.follow([SECRET])
    assert secrets.hash == ""
    known = [await secrets.await_hash()]
    secrets.annotate("new")
    known.append(await secrets.await_hash(*known))
    secrets.delete()
    await secrets.await_hash(*known)
    assert secrets.changes == 3


@pytest.mark.parametrize("fault", [None, BROKEN, error_event(410)], ids=["ended", "broken", "outdated"])
async def test_a_change_during_a_broken_watch_is_noticed(secrets: Secrets, proxy: Proxy, fault: object):
    secrets.watches.follow([SECRET])
    before = await secrets.await_hash()
    if isinstance(fault, bytes):
        proxy.send_into_watches(fault)
    else:
        proxy.faults = Faults(watches=fault, only="/secrets", times=3)
        proxy.break_watches()
    secrets.annotate("new")
    await secrets.await_hash(before)


async def test_a_version_stays_known_while_the_api_server_is_away(secrets: Secrets, pods: Pods, proxy: Proxy):
    secrets.watches.follow([SECRET])
    before = await secrets.await_hash()
    refused: list[bool] = []
    proxy.faults = Faults(
        reads=Refusal(500), watches=BROKEN, only="/secrets", times=None, strikes=lambda: refused.append(True) or True
    )
    proxy.break_watches()
    await pods.until(lambda: len(refused) > 2)
    assert (secrets.hash, list(secrets.watches.unwatched)) == (before, [])


async def test_broken_watches_and_failed_listings_are_no_changes(secrets: Secrets, pods: Pods, proxy: Proxy):
    secrets.watches.follow([SECRET])
    before = await secrets.await_hash()
    failures: list[bool] = []
    proxy.faults = Faults(
        reads=Refusal(500), watches=BROKEN, only="/secrets", times=2, strikes=lambda: failures.append(True) or True
    )
    proxy.break_watches()
    await pods.until(lambda: len(failures) >= 4)
    secrets.annotate("new")
    await secrets.await_hash(before)
    assert secrets.changes == 2, "the first listing and the new version"


async def test_a_secret_that_can_no_longer_be_read_is_unwatched(
    secrets: Secrets, pods: Pods, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    secrets.watches.follow([SECRET])
    before = await secrets.await_hash()
    unreadable = True

    def read(found: object) -> Secret:
        if unreadable:
            raise KeyError("metadata")
        return read_secret(found)

    monkeypatch.setattr(secrets.watches._informers[SECRET].cache, "read", read)
    secrets.annotate("new")
    await pods.until(lambda: list(secrets.watches.unwatched) == [SECRET])
    unreadable = False
    await pods.until(lambda: not secrets.watches.unwatched)
    assert secrets.hash not in ("", before)


async def test_a_secret_is_unwatched_while_it_is_forbidden(
    secrets: Secrets, pods: Pods, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(secret_watch, "FORBIDDEN_SECONDS", 0.2)
    secrets.watches.follow([SECRET])
    before = await secrets.await_hash()
    proxy.faults = Faults(reads=Refusal(403), watches=BROKEN, only="/secrets", times=None)
    proxy.break_watches()
    await pods.until(lambda: list(secrets.watches.unwatched) == [SECRET])
    assert secrets.hash == ""
    proxy.heal()
    await pods.until(lambda: not secrets.watches.unwatched)
    assert secrets.hash == before
