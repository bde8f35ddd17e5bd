"""The dashboard as Grafana reads it. Its queries are run in the end-to-end test."""

import json
from collections import Counter
from typing import Any

from hack.monitoring.files import FOLDER
from hack.monitoring.panels import rows

DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


def panels(kind: str = "") -> list[dict[str, Any]]:
    """All panels but rows, or those of a kind."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] == kind or (not kind and panel["type"] != "row")]


def test_it_has_every_row_and_panel_with_all_its_queries():
    assert [row["title"] for row in panels("row")] == [row.title for row in rows()]
    shown = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in panels()}
    assert shown == {
        panel.title: [query.expression for query in panel.queries] for row in rows() for panel in row.panels
    }


def test_no_two_panels_have_the_same_id_or_lie_on_each_other():
    ids = Counter(panel["id"] for panel in DASHBOARD["panels"])
    assert set(ids.values()) == {1}
    cells = Counter(
        (place["x"] + x, place["y"] + y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["w"])
        for y in range(place["h"])
    )
    assert set(cells.values()) == {1}
    assert max(x for x, _ in cells) < COLUMNS


def test_a_viewer_chooses_prometheus_and_the_zones():
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "pool", "zone"]
    assert variables["datasource"]["query"] == "prometheus"
    for panel in panels():
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
    for name in ("namespace", "pool", "zone"):
        assert variables[name]["datasource"] == SOURCE
        assert (variables[name]["multi"], variables[name]["includeAll"], variables[name]["allValue"]) == (
            True,
            True,
            ".*",
        )


def test_each_panel_says_what_it_shows_and_in_which_unit():
    for panel in panels():
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["legendFormat"] and target["refId"] for target in panel["targets"])


def test_one_panel_is_repeated_for_each_zone():
    assert [panel["title"] for panel in panels() if panel.get("repeat") == "zone"] == [
        "$zone: held against reserved and limit"
    ]
