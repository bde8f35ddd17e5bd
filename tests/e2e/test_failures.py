"""Parts of the cluster fail or are replaced, and nothing that was declared is lost."""

import pytest

from tests.e2e.waiting import await_that


def test_the_leading_operators_pod_is_deleted(installation, engines):
    leader = installation.leader()
    installation.kubectl("delete", "pod", leader)
    await_that(lambda: installation.leader() not in ("", leader), "another one leads")
    engines.reserve("acme", 60)
    installation.await_rollout()
    assert len(installation.pods()) == 2


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
    node.kill_container(engines.container(killed))
    await_that(lambda: engines.pods() == [other], "the killed one is not ready any more")
    assert client.ask("acme", "Who is there? " * 20)["usage"]["prompt_tokens"] > 0
    await_that(lambda: len(engines.pods()) == 2, "it is back", seconds=600)
    engines.reserve("acme", 63)


@pytest.fixture(scope="module", autouse=True)
def two_engines(engines):
    engines.scale(2)
