"""Parts of the cluster fail or are replaced, and no declaration is lost."""

import time

import pytest

from hack.controlplane import ClusterError
from tests.waiting import await_that


def test_the_leading_operators_pod_is_deleted(installation, engines):
    leader = installation.leader()
    installation.kubectl("delete", "pod", leader)
    await_that(lambda: installation.leader() not in ("", leader), "another one leads")
    engines.reserve("acme", 60)
    installation.await_rollout()
    assert len(installation.pods()) == 2


def test_a_drain_takes_one_operator_at_a_time(installation):
    first, second = (pod["metadata"]["name"] for pod in installation.pods())
    installation.evict(first)
    with pytest.raises(ClusterError, match="disruption budget"):
        installation.evict(second)
    installation.await_rollout()


def test_what_changed_while_no_operator_ran_is_enforced_soon_after_one_starts(installation, engines, capsys):
    before = engines.reserved("acme")
    installation.scale(0)
    engines.kubectl("patch", "tenantzone/acme", "--type=merge", '--patch={"spec":{"reserved":50}}')
    assert engines.reserved("acme") == before, "engines go on with what they had"
    began = time.monotonic()
    installation.kubectl("scale", "deployment/tenantzone-operator", "--replicas=1")
    await_that(lambda: installation.leader() != "", "one leads")
    leading = time.monotonic() - began
    await_that(lambda: set(engines.reserved("acme").values()) == {50}, "both engines enforce the change")
    enforced = time.monotonic() - began
    with capsys.disabled():
        print("\nkubectl scale from no operator to one, with scheduling and the container's start, in seconds:")
        print(f"  until it leads {leading:.2f}   until both engines enforce what had changed meanwhile {enforced:.2f}")
    installation.scale(2)


def test_the_api_server_ends_and_comes_back(node, engines):
    node.kill("kube-apiserver")
    await_that(lambda: engines.answers(), "the API server answers again")
    engines.reserve("acme", 61)


def test_etcd_ends_and_comes_back(node, engines):
    node.kill("etcd")
    await_that(lambda: engines.answers(), "the API server answers again")
    engines.reserve("acme", 62)


def test_an_engine_is_killed_from_the_node_while_the_other_serves(node, engines, client):
    killed, other = engines.pods()
    before = engines.container(killed)
    assert node.kill_largest_process(before["containerID"]).startswith("VLLM::"), "not the API server"
    await_that(lambda: engines.pods() == [other], "the killed one is not ready any more")
    assert client.ask("acme", "Who is there? " * 20)["usage"]["prompt_tokens"] > 0
    engines.await_pods(2)
    assert engines.container(killed)["restartCount"] == before["restartCount"] + 1
    engines.reserve("acme", 63)
