"""The plugin's knowledge of what this version ships."""

import copy
import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import yaml

from hack.generate import shipped as generator
from tenantzone_cli.__main__ import main
from tenantzone_cli.doctor.shipped import Right, differences, field_path, read_shipped

REPOSITORY = Path(__file__).parents[2]


def test_the_plugin_knows_the_present_schemas_and_rights():
    assert generator.SHIPPED.read_text() == generator.shipped(), "run: python -m hack.generate.shipped"


def test_each_right_of_the_operators_roles_is_known():
    rights = read_shipped().rights

    assert Right("tenantzone.io", "tenantzones", "list") in rights
    assert Right("", "pods", "patch") in rights
    assert all(right.verb and right.resource for right in rights)


def test_a_schema_does_not_differ_from_its_source_with_all_its_texts():
    for file in (REPOSITORY / "crds").glob("*.yaml"):
        definition = yaml.safe_load(file.read_text())
        (version,) = definition["spec"]["versions"]
        known = read_shipped().definitions[definition["metadata"]["name"]][version["name"]]

        assert list(differences(known, version["schema"]["openAPIV3Schema"])) == []


def test_fields_named_like_texts_are_fields():
    schema = {"properties": {"message": {"type": "string", "description": "Why."}}}

    assert [entry.is_missing for entry in differences(schema, {"properties": {}})] == [True]
    assert [entry.is_missing for entry in differences({"properties": {}}, schema)] == [False]


def test_a_difference_says_where_it_is():
    ours = read_shipped().definitions["tenantzones.tenantzone.io"]["v1alpha1"]
    theirs = copy.deepcopy(ours)
    spec = theirs["properties"]["spec"]["properties"]
    spec["weight"]["minimum"] = 0
    del spec["idle"]["properties"]["after"]
    spec["novel"] = {"type": "string"}

    found = {field_path(entry.path): entry.is_missing for entry in differences(ours, theirs)}

    assert found == {"spec.weight.minimum": False, "spec.idle.after": True, "spec.novel": False}


def test_kubectl_finds_the_plugin_by_both_names():
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]

    for name in ("kubectl-tenantzone", "kubectl-tz"):
        assert EntryPoint(name, scripts[name], "console_scripts").load() is main


def test_the_shipped_file_is_part_of_the_package():
    data = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]

    assert generator.SHIPPED.name in data["tenantzone_cli.doctor"]
    assert json.loads(generator.SHIPPED.read_text()).keys() == {"definitions", "rights"}
