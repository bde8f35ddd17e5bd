"""The schema of TenantZone: what the API server refuses, and with which words; its defaults; kubectl's columns."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane import Cluster
from tenantzone_contract.reports.tier_summary import TierSummary
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_operator.kube.resources import read_zone
from tests.operator.crd_objects import manifest, refused, zone


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        pytest.param(
            zone(reserved="40%", limit="10%"),
            "limit (10%) must not be below reserved (40%); raise limit or lower reserved",
            id="a limit below the reservation, in percent",
        ),
        pytest.param(
            zone(reserved="9%", limit="8%"), "limit (8%) must not be below reserved (9%)", id="compared as numbers"
        ),
        pytest.param(
            zone(reserved=40, limit=10), "limit (10 blocks) must not be below reserved (40 blocks)", id="in blocks"
        ),
        pytest.param(
            zone(reserved=10, lending={"lendable": 11}),
            "lending.lendable (11 blocks) must not exceed reserved (10 blocks)",
            id="lending more than is reserved",
        ),
        pytest.param(zone(reserved="40 %"), "spec.reserved", id="a percentage with a space"),
        pytest.param(zone(reserved="101%"), "spec.reserved", id="more than everything"),
        pytest.param(zone(reserved=-1), "spec.reserved", id="a negative reservation"),
        pytest.param(zone(limit="0%"), "spec.limit", id="a limit of nothing"),
        pytest.param(zone(weight=0), "spec.weight", id="no weight"),
        pytest.param(zone(idle={"after": "1 minute"}), "spec.idle.after", id="a duration in words"),
        pytest.param(zone(scrub="Maybe"), '"OnTransfer", "Never"', id="an unknown way to scrub"),
        pytest.param(zone(evictionPolicy="FIFO"), '"LRU", "Clock"', id="an unknown eviction policy"),
        pytest.param(
            zone(lending={"borrowers": "Friends"}), '"SameOrHigherPriority", "AnyPriority"', id="unknown borrowers"
        ),
        pytest.param(zone(lending={"grace": "a while"}), "spec.lending.grace", id="a grace in words"),
        pytest.param(
            zone(idle={"forgetAfter": "1h"}),
            'unknown field "spec.idle.forgetAfter"',
            id="forgetting a zone that is declared",
        ),
        pytest.param(
            zone(idle={"release": {"share": "25%", "every": "250ms"}}),
            "release.every (250ms) must not be below 1s",
            id="a release in steps too fast to count",
        ),
        pytest.param(
            zone(idle={"release": {"share": "0%", "every": "1m"}}), "release.share", id="a release of nothing"
        ),
        pytest.param(zone(idle={"release": {"share": "25%"}}), "release.every", id="a release without an interval"),
        *(
            pytest.param(
                zone(fairness={"header": header}),
                f"fairness.header ('{header}') must be a header of its own",
                id=f"users by {header}",
            )
            for header in ("authorization", "x-api-key", "Authorization")
        ),
        pytest.param(zone(fairness={"header": "x-user:"}), "spec.fairness.header", id="a header with a colon"),
        pytest.param(
            zone(latency={"tokenTime": "999999ns"}), "spec.latency.tokenTime", id="a target in a unit that is none"
        ),
        pytest.param(
            zone(latency={"tokenTime": "0.9ms"}),
            "latency.tokenTime (0.9ms) must be from 1ms to 10m",
            id="a target that nothing meets",
        ),
        pytest.param(
            zone(latency={"firstToken": "10m1ms"}),
            "latency.firstToken (10m1ms) must be from 1ms to 10m",
            id="a target that everything meets",
        ),
        pytest.param(
            zone(latency={"firstToken": "9999999999999999999999999999h"}),
            "spec.latency.firstToken",
            id="a target longer than can be counted",
        ),
        pytest.param(
            zone(seats={"reserved": 5, "limit": 4}),
            "seats.limit must not be below seats.reserved",
            id="more seats reserved than allowed",
        ),
        pytest.param(
            zone(seats={"reserved": "10%", "limit": "9%"}),
            "seats.limit must not be below seats.reserved",
            id="the same in percent",
        ),
        pytest.param(zone(seats={"limit": 0}), "spec.seats.limit", id="a limit of no seat"),
        pytest.param(zone(seats={"limit": "0%"}), "spec.seats.limit", id="a limit of no seat in percent"),
        pytest.param(zone(seats={"reserved": 2**31}), "spec.seats.reserved", id="more seats than any engine has"),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "reserved": "2Gi", "limit": "2000Mi"}]),
            "limit (2000Mi) of tier cpu must not be below reserved (2Gi)",
            id="a tier's limit below what is reserved there",
        ),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "reserved": "1Ki", "limit": 1023}]),
            "limit (1023) of tier cpu must not be below reserved (1Ki)",
            id="the same as a number of bytes",
        ),
        pytest.param(
            zone(tiers=[{"tier": "disk", "reserved": "10%", "limit": "9%"}]),
            "limit (9%) of tier disk must not be below reserved (10%)",
            id="the same of a tier in percent",
        ),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "reserved": "2Gi", "limit": "0%"}]),
            "limit (0%) of tier cpu must not be below reserved (2Gi)",
            id="bytes of a tier that the zone may not use",
        ),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "reserved": "10%", "limit": 0}]),
            "limit (0) of tier cpu must not be below reserved (10%)",
            id="a percentage of such a tier",
        ),
        pytest.param(zone(tiers=[{"tier": "tape"}]), '"cpu", "disk"', id="an unknown tier"),
        pytest.param(
            zone(tiers=[{"tier": "cpu"}, {"tier": "cpu"}]), "Duplicate value", id="a tier that is named twice"
        ),
        pytest.param(zone(tiers=[{"tier": "cpu", "reserved": "1GiB"}]), "reserved", id="bytes in a unit that is none"),
        pytest.param(zone(tiers=[{"tier": "cpu", "limit": -1}]), "limit", id="a limit below nothing"),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "ttl": "500ms"}]),
            "tiers.ttl (500ms) must not be below 1s",
            id="a tier's short ttl",
        ),
        pytest.param(
            zone(tiers=[{"tier": "disk", "ttl": "24h"}], retention={"ttl": "1h"}),
            "a tier's ttl must not exceed retention.ttl",
            id="a tier that keeps longer than the zone",
        ),
        pytest.param(zone(offload="Some"), '"Prompt", "All", "Never"', id="an unknown way to offload"),
        pytest.param(zone(tenant="-acme"), "spec.tenant", id="a tenant that could not be a file's name"),
        pytest.param(manifest("TenantZone", {}), "spec.pool", id="a zone without a pool"),
        pytest.param(zone(reserve="40%"), 'unknown field "spec.reserve"', id="a field with a typing error"),
    ],
)
def test_what_the_api_server_refuses(control_plane: Cluster, body: str, refusal: str):
    assert refusal in refused(control_plane, body)


@pytest.mark.controlplane
def test_a_zone_that_says_all_of_it_is_taken(control_plane: Cluster):
    body = zone(
        weight=3,
        lending={"lendable": "50%", "borrowers": "AnyPriority", "maxLoan": "10m", "grace": "0s"},
        idle={"after": "10m", "evictAfter": "30s", "release": {"share": "100%", "every": "1s"}},
        evictionPolicy="Clock",
        tiers=[
            {"tier": "cpu", "reserved": "8Gi", "limit": "25%", "ttl": "1h"},
            {"tier": "disk", "reserved": 10**12, "limit": "1.5Ti"},
        ],
        retention={"ttl": "90m"},
        offload="Prompt",
    )
    control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=body)


@pytest.fixture(scope="module")
def stored(control_plane: Cluster) -> Iterator[Cluster]:
    """A cluster with a zone that names its tenant, and one that does not."""
    for name, tenant in (("named", {"tenant": "acme"}), ("unnamed", {})):
        control_plane.kubectl("apply", "--filename=-", stdin=manifest("TenantZone", {"pool": "nowhere"} | tenant, name))
    yield control_plane
    control_plane.kubectl("delete", "tenantzones", "named", "unnamed")


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("name", "patch", "refusal"),
    [
        pytest.param("named", {"pool": "other"}, "pool is immutable", id="another pool"),
        pytest.param(
            "named", {"tenant": "burst"}, "tenant (by default the object's name) is immutable", id="another tenant"
        ),
        pytest.param(
            "named", {"tenant": None}, "tenant (by default the object's name) is immutable", id="a tenant taken away"
        ),
        pytest.param(
            "unnamed", {"tenant": "acme"}, "tenant (by default the object's name) is immutable", id="a tenant added"
        ),
    ],
)
def test_what_can_not_be_changed(stored: Cluster, name: str, patch: dict[str, Any], refusal: str):
    answer = stored.kubectl(
        "patch", "tenantzone", name, "--type=merge", "--patch", json.dumps({"spec": patch}), check=False
    )

    assert answer.returncode != 0
    assert refusal in answer.stderr


@pytest.mark.controlplane
def test_a_tenant_may_be_named_that_is_the_name_anyway(stored: Cluster):
    """As by a user who applies the advice."""
    for tenant in ("unnamed", None):
        stored.kubectl(
            "patch", "tenantzone", "unnamed", "--type=merge", "--patch", json.dumps({"spec": {"tenant": tenant}})
        )


@pytest.mark.controlplane
def test_what_is_filled_in(control_plane: Cluster):
    answer = control_plane.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=zone())

    assert json.loads(answer.stdout)["spec"] == {
        "pool": "demo",
        "priority": 0,
        "reserved": 0,
        "weight": 1,
        "lending": {"lendable": "100%", "borrowers": "SameOrHigherPriority", "grace": "30s"},
        "idle": {"after": "60s"},
        "evictionPolicy": "LRU",
        "scrub": "Never",
    }


@pytest.mark.controlplane
def test_what_is_filled_in_means_the_same_as_what_the_contract_assumes(control_plane: Cluster):
    answer = control_plane.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=zone())

    # A dry run gets no generation of its own to count from.
    filled = json.loads(answer.stdout)
    filled["metadata"] |= {"resourceVersion": "1", "generation": 1}
    assert read_zone(filled).config == ZoneConfig(name="sample", tenant="sample", generation=1)


@pytest.mark.controlplane
def test_kubectl_shows_what_a_zone_holds_in_tiers(stored: Cluster):
    row = TierSummary("cpu", held=8_450_000_000, reserved=2**34, hits=5).fields()
    enforced = {
        "type": "TiersEnforced",
        "status": "True",
        "reason": "Enforced",
        "message": "1 engine has the tiers",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = json.dumps({"status": {"tiers": [row], "conditions": [enforced]}})
    stored.kubectl("patch", "tenantzone", "named", "--subresource=status", "--type=merge", "--patch", patch)

    head, named = stored.kubectl("get", "tz", "named", "--output=wide").stdout.splitlines()

    columns = ("CPU", "DISK", "TIERS")
    assert [named[head.index(column) :].split()[0] for column in columns[:1]] == ["7.9Gi/16Gi"]
    assert named[head.index("TIERS") :].split()[0] == "True"
    assert all(column in head for column in columns)


@pytest.mark.controlplane
def test_kubectl_explains_a_field(control_plane: Cluster):
    explained = control_plane.kubectl("explain", "tz.spec.lending.lendable").stdout

    assert "Part of the reservation that other zones may use" in explained


@pytest.mark.controlplane
@pytest.mark.parametrize("word", ["tz", "tenantzone", "tenantzones", "tenantzone.tenantzone.io"])
def test_one_zone_can_be_named_with_each_word(stored: Cluster, word: str):
    """A category with a kind's own name would turn this into an error of kubectl's."""
    found = stored.kubectl("get", word, "--output=name").stdout.split()

    assert found
    assert stored.kubectl("get", word, found[0].rpartition("/")[2], "--output=name").stdout.split() == found[:1]
