"""The commands of docs/production.md do what it says."""

import json
import os
import re
import subprocess

import pytest
import yaml

from tenantzone_operator.serving.exposition import families as operator_families
from tenantzone_runtime.metrics import families as engine_families
from tests.docs.test_site import DOCS, REPOSITORY
from tests.monitoring.promtool import promtool

PAGE = (DOCS / "production.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.controlplane
def test_zones_and_pools_come_back_from_the_backup_as_they_were(control_plane, namespace, tmp_path):
    backup, restore = blocks("sh")

    def kubectl(*arguments: str) -> str:
        return control_plane.kubectl("--namespace", namespace, *arguments).stdout

    def type_in(command: str) -> None:
        program = control_plane.kubectl_program.parent
        environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig), "PATH": f"{program}:{os.defpath}"}
        # Other tests have their own zones in the same cluster.
        command = command.replace("--all-namespaces", f"--namespace={namespace}")
        subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=environment)

    def specs() -> dict[tuple[str, str], object]:
        items = json.loads(kubectl("get", "tenantzones,zonepools", "-o", "json"))["items"]
        return {(item["kind"], item["metadata"]["name"]): item["spec"] for item in items}

    samples = REPOSITORY / "manifests" / "samples"
    kubectl("apply", "--filename", str(samples), "--filename", str(samples / "uses" / "auto-register-pool.yaml"))
    before = specs()
    assert {kind for kind, _ in before} == {"TenantZone", "ZonePool"}

    type_in(backup)
    kubectl("delete", "tenantzones,zonepools", "--all")
    assert specs() == {}
    type_in(restore)

    assert specs() == before


def test_the_queries_are_well_formed_and_ask_for_metrics_that_there_are(tmp_path):
    queries = [query for block in blocks("promql") for query in block.strip().split("\n\n")]
    assert queries
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")
    recorded = yaml.safe_load((REPOSITORY / "manifests" / "monitoring" / "rules.yaml").read_text())
    known = {family.name for family in (*engine_families("full"), *operator_families())}
    known |= {rule["record"] for group in recorded["groups"] for rule in group["rules"] if "record" in rule}
    assert set(re.findall(r"\btenantzone[_:][\w:]+", "".join(queries))) <= known
