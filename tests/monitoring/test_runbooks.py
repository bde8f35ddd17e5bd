"""Each alert has a page for a person who was just woken, and its commands are right."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.monitoring.rules import groups
from tenantzone_cli.arguments import read_arguments
from tenantzone_manager.metrics import Metrics
from tenantzone_operator.serving.exposition import families as operator_families
from tenantzone_runtime.metrics import families as engine_families
from tests.monitoring.promtool import promtool

REPOSITORY = Path(__file__).parents[2]
PAGES = REPOSITORY / "docs" / "runbooks"
SECTIONS = [
    "What it means",
    "What to look at",
    "What to run",
    "What usually helps",
    "When it is safe to ignore",
]
ALERTS = [alert.name for group in groups() for alert in group.alerts]


def page(alert: str) -> str:
    return (PAGES / f"{alert}.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(alert: str) -> list[list[str]]:
    return [shlex.split(line) for block in blocks(page(alert), "sh") for line in block.splitlines()]


def test_there_is_a_page_for_each_alert_and_no_other():
    assert sorted(path.stem for path in PAGES.iterdir()) == sorted(ALERTS)


def test_the_page_of_all_alerts_has_each_with_its_severity_and_its_runbook():
    table = (REPOSITORY / "docs" / "alerts.md").read_text()
    reported = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \|", table, re.MULTILINE)
    assert sorted(reported) == sorted(
        (alert.name, alert.name, alert.severity) for group in groups() for alert in group.alerts
    )


@pytest.mark.parametrize("alert", ALERTS)
def test_a_page_has_the_alerts_name_and_all_sections_in_order(alert: str):
    assert page(alert).startswith(f"# {alert}\n")
    parts = re.split(r"^## (.*)\n", page(alert), flags=re.MULTILINE)
    assert parts[1::2] == SECTIONS
    assert all(text.strip() for text in parts[2::2])


@pytest.mark.parametrize("alert", ALERTS)
def test_the_plugin_understands_each_command_that_a_page_gives(alert: str):
    of_plugin = [command[2:] for command in commands(alert) if command[:2] == ["kubectl", "tenantzone"]]
    assert of_plugin
    for command in of_plugin:
        read_arguments(command)


@pytest.mark.parametrize("alert", ALERTS)
def test_what_a_page_gives_to_type_is_for_kubectl(alert: str):
    assert all(command[0] == "kubectl" for command in commands(alert))


def test_the_queries_of_all_pages_are_well_formed(tmp_path: Path):
    queries = list(_queries())
    assert len(queries) > len(ALERTS)
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", file)


def test_the_queries_of_all_pages_ask_for_metrics_that_there_are():
    known = {family.name for family in (*engine_families("full"), *operator_families(), *Metrics().families)}
    for query in _queries():
        for name in re.findall(r"\btenantzone_\w+", query):
            assert name.removesuffix("_bucket") in known, query


def test_a_query_that_needs_more_than_the_default_metrics_of_engines_says_so():
    by_default = {family.name for family in (*engine_families(), *operator_families(), *Metrics().families)}
    for query in _queries():
        needs_more = not set(re.findall(r"\btenantzone_\w+", query)) <= by_default
        assert "# of engines with --metrics-level" in query or not needs_more, query


@pytest.mark.parametrize("alert", ALERTS)
def test_the_links_of_a_page_lead_somewhere(alert: str):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page(alert)):
        assert (PAGES / target).exists()


def _queries() -> Iterator[str]:
    """One query ends at an empty line."""
    for alert in ALERTS:
        for block in blocks(page(alert), "promql"):
            yield from block.strip().split("\n\n")
