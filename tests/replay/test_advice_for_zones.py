"""``advise --zones``: the command, for a pool that has zones."""

import json

import pytest
import yaml

from tenantzone_replay.__main__ import main


def tenant_zone(name: str, tenant: str, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "tenantzone.io/v1alpha1",
        "kind": "TenantZone",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"pool": "chat", "tenant": tenant, **spec},
    }


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 200 * number, "input_length": 64, "output_length": 2, "user_id": "ab"[number % 2]}
        for number in range(12)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def advise(trace, zones, *more: str) -> None:
    main(["advise", str(trace), "--blocks", "40", "--trials", "0", "--attain", "1%", "--zones", str(zones), *more])


def test_the_present_zones_have_a_row_and_give_their_names_and_their_pool(trace, tmp_path, capsys):
    zones = tmp_path / "zones.yaml"
    present = [tenant_zone("first", "a", reserved="70%"), tenant_zone("second", "b"), tenant_zone("third", "c")]
    zones.write_text(yaml.safe_dump_all(present))

    advise(trace, zones)

    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if line.endswith("present zones")]
    assert [row.split()[0] for row in rows] == ["40"]
    assert "The present zones have 100.0% in time with 40 blocks" in printed
    objects = [each for each in yaml.safe_load_all(printed[printed.index("\n---") :]) if each]
    assert {each["metadata"]["name"]: each["spec"]["tenant"] for each in objects} == {"first": "a", "second": "b"}
    assert {each["spec"]["pool"] for each in objects} == {"chat"}
    advise(trace, zones, "--pool", "other")
    assert 'pool: "other"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("zones", "message"),
    [
        pytest.param(
            [tenant_zone("first", "a")],
            "has no zone for these tenants of the load: b; add",
            id="a tenant without a zone",
        ),
        pytest.param([tenant_zone("first", "a", reservd=1)], r"unknown field spec\.reservd", id="misspelt"),
        pytest.param(None, r"zones\.yaml: No such file", id="no file"),
    ],
)
def test_zones_that_can_not_be_used_are_refused_before_the_search(trace, tmp_path, capsys, zones, message):
    path = tmp_path / "zones.yaml"
    if zones is not None:
        path.write_text(yaml.safe_dump_all(zones))

    with pytest.raises(SystemExit, match=message):
        advise(trace, path)

    assert "worst tenant" not in capsys.readouterr().err


def test_a_tenant_that_no_zone_can_name_is_refused_with_what_to_do(trace, tmp_path):
    path = tmp_path / "zones.yaml"
    path.write_text(yaml.safe_dump(tenant_zone("first", "a")))
    trace.write_text(trace.read_text().replace('"b"', '"b@shop"', 1))

    with pytest.raises(SystemExit, match=r"no zone for these tenants of the load: b@shop; .*; rename these tenants"):
        advise(trace, path)
