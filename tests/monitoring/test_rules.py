"""The rules by Prometheus' own tool: they are well-formed, and fire when they should and only then."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.monitoring.files import CASES, FOLDER, RUNBOOKS, cases, files
from hack.monitoring.model import Alert, Group, rule_file
from hack.monitoring.panels import rows
from hack.monitoring.rules import groups
from hack.monitoring.time_scale import TimeScale
from tenantzone_manager.metrics import Metrics
from tenantzone_operator.serving.exposition import families as operator_families
from tenantzone_runtime.metrics import families as engine_families
from tests.monitoring.promtool import promtool

REPOSITORY = Path(__file__).parents[2]
ALERTS = [alert for group in groups() for alert in group.alerts]
NAMES = [alert.name for alert in ALERTS]


def test_the_committed_files_are_what_the_source_makes():
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == files(), "run `make monitoring`"
    assert {path.name: path.read_text() for path in CASES.iterdir()} == cases(), "run `make monitoring`"


def test_the_shipped_rules_link_to_the_runbooks_by_the_projects_url():
    text = (FOLDER / "rules.yaml").read_text()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    documentation = project["urls"]["Documentation"]
    assert re.match(r"https://[\w.-]+/", documentation)
    links = re.findall(r"^ +runbook_url: (.*)$", text, re.MULTILINE)
    assert links == [f"{documentation}/runbooks/{alert}.md" for alert in NAMES]


def test_another_url_of_the_runbooks_is_in_all_files():
    for made in (files("https://docs.example/runbooks/"), cases("https://docs.example/runbooks/")):
        text = "".join(made.values())
        assert RUNBOOKS not in text
        assert text.count("runbook_url: https://docs.example/runbooks/TenantZone") == text.count("runbook_url:") > 0


@pytest.mark.parametrize("scale", [1.0, 1 / 15], ids=["as shipped", "scaled down"])
def test_the_rules_are_well_formed(scale: float, tmp_path: Path):
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule_file(groups(TimeScale(scale)), RUNBOOKS)))
    assert f"SUCCESS: {sum(len(group.rules) for group in groups())} rules found" in promtool("check", "rules", file)


def test_both_files_have_the_same_rules():
    manifest = yaml.safe_load((FOLDER / "prometheus-rule.yaml").read_text())
    assert manifest["spec"] == yaml.safe_load((FOLDER / "rules.yaml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_when_it_should_and_only_then(name: str):
    promtool("test", "rules", CASES / f"{name}.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_cases_that_fire_that_stop_and_that_do_not_fire(name: str):
    cases = yaml.safe_load((CASES / f"{name}.yaml").read_text())["tests"]
    fires = [[bool(check["exp_alerts"]) for check in case["alert_rule_test"]] for case in cases]
    assert any(checks[-2:] == [True, False] for checks in fires)
    assert any(not any(checks) for checks in fires)


def test_no_case_is_left_over():
    assert sorted(path.stem for path in CASES.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_says_how_grave_it_is_where_and_what_to_do(alert: Alert):
    (rule,) = rule_file((_group_of(alert),), "https://docs.example/runbooks/")["groups"][0]["rules"]
    assert rule["labels"]["severity"] in ("page", "warning")
    assert rule["annotations"]["runbook_url"] == f"https://docs.example/runbooks/{alert.name}.md"
    assert all(rule["annotations"][text] for text in ("summary", "description"))
    if "tenantzone_zone_" in alert.expression or "tenantzone:zone_" in alert.expression:
        for label in ("namespace", "pod", "pool", "zone", "tenant"):
            assert f"$labels.{label} " in alert.description


def test_every_metric_and_label_that_is_asked_for_is_there():
    labels = {
        family.name: set(family.labels)
        for family in (*engine_families("full"), *operator_families(), *Metrics().families)
    }
    of_histograms = {
        f"{family.name}_{part}": set(family.labels) | {"le"}
        for family in (*engine_families("full"), *operator_families(), *Metrics().families)
        if family.type == "histogram"
        for part in ("bucket", "count", "sum")
    }
    # Labels that Prometheus adds: the scraped target.
    target = {"namespace", "pod"}
    for name, matched in _asked_for():
        assert name in labels | of_histograms, name
        assert matched <= (labels | of_histograms)[name] | target, name


def _asked_for() -> Iterator[tuple[str, set[str]]]:
    """Metrics in rules and dashboard, with the labels by which they are selected."""
    expressions = [rule.expression for group in groups() for rule in group.rules]
    expressions += [query.expression for row in rows() for panel in row.panels for query in panel.queries]
    for expression in expressions:
        for name, selector in re.findall(r"\b(tenantzone_\w+)(?:\{([^}]*)\})?", expression):
            yield name, set(re.findall(r"(\w+)=", selector))


def _group_of(alert: Alert) -> Group:
    return Group("one", "15s", (alert,))
