"""``advise --watch``: the advice in pools' statuses, as a table and for programs."""

import json
from typing import Any

import pytest

from tenantzone_cli.actions import planning
from tenantzone_cli.arguments import read_arguments
from tenantzone_cli.views.live_advice import NoPoolError, advice_document, advice_table, read_pools

RECOMMENDED = {
    "zone": "chat",
    "field": "limit",
    "from": "40%",
    "value": "50%",
    "reason": "LimitTooLow",
    "message": "limit of chat: 40% -> 50%",
    "since": "2026-01-01T00:00:00Z",
}
KEPT = {
    "zone": "acme",
    "field": "weight",
    "spec": "1",
    "value": "2",
    "state": "Kept",
    "since": "2026-01-01T00:10:00Z",
    "message": "the latency of acme was 4.00 times its target, and is 1.10 times since the change",
}
NOW = 1767226800.0
"""20 minutes past midnight."""


class Cluster:
    """An API server that has these pools."""

    def __init__(self, **pools: dict[str, Any]) -> None:
        self._pools = pools

    def list(self, path: str) -> list[dict[str, Any]]:
        assert path.endswith("/zonepools")
        return [{"metadata": {"namespace": "shop", "name": name}, **body} for name, body in self._pools.items()]


POOLS = Cluster(
    spot={"status": {"recommendation": RECOMMENDED}},
    demo={"spec": {"advice": {"mode": "Auto"}}, "status": {"adjustments": [KEPT]}},
    calm={},
    own={"spec": {"advice": {"mode": "Never"}}},
)


def test_each_pool_has_a_line_for_each_advice():
    head, *lines = advice_table(read_pools(POOLS, "shop", None), NOW)
    assert head.split() == ["POOL", "MODE", "STATE", "ZONE", "FIELD", "SPEC", "VALUE", "SINCE", "WHY"]
    reported = [line.split(maxsplit=8) for line in lines]
    assert [line[:2] for line in reported] == [
        ["calm", "Recommend"],
        ["demo", "Auto"],
        ["own", "Never"],
        ["spot", "Recommend"],
    ]
    assert reported[0][8] == "there is no advice"
    assert reported[1][2:8] == ["Kept", "acme", "weight", "1", "2", "10m"]
    assert reported[2][8] == "spec.advice.mode is Never"
    assert reported[3][2:8] == ["Recommended", "chat", "limit", "40%", "50%", "20m"]


def test_programs_get_what_the_status_has():
    (pool,) = json.loads(advice_document(read_pools(POOLS, "shop", "demo"), indent=None))["pools"]
    assert pool == {
        "namespace": "shop", "pool": "demo", "mode": "Auto", "recommendation": None, "adjustments": [KEPT],
    }  # fmt: skip


def test_a_pool_that_is_not_there_is_named():
    with pytest.raises(NoPoolError, match="there is no ZonePool other in namespace shop"):
        read_pools(POOLS, "shop", "other")
    assert advice_table([], NOW) == ["there is no ZonePool"]


def test_advise_asks_the_cluster_only_if_it_is_watched():
    assert planning.is_planned(["advise", "trace.jsonl"])
    assert planning.is_planned(["replay", "--watch"])
    assert not planning.is_planned(["advise", "--watch"])
    assert not planning.is_planned(["advise", "--kubeconfig", "file"])
    assert not planning.is_planned(["advise", "--context=here"])
    assert not planning.is_planned(["advise", "-n", "shop", "--once"])
    assert not planning.is_planned(["advise", "-nshop"])
    assert not planning.is_planned([])
    assert read_arguments(["advise", "--watch"]).watch
    assert not read_arguments(["advise", "--once"]).watch
