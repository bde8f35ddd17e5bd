"""The glossary's fields: each has one name from the custom resource to the zone core."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from pydantic import BaseModel

from tenantzone_contract.reports.words import EvictionReason
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.config.enforcement import Watermarks
from tenantzone_runtime.zones.model.zone import ZoneSpec

REPOSITORY = Path(__file__).parents[2]
GLOSSARY = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
OUTSIDE = ("the frontend's", "a tier's")
"""Owners of fields that no spec of the core has."""
CORE = {"ZoneSpec": ZoneSpec, "Watermarks": Watermarks}


def table(first_column: str) -> list[list[str]]:
    """The rows, without the header, of the table whose first column has this heading."""
    rows = re.search(rf"^\| {re.escape(first_column)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", GLOSSARY, re.MULTILINE)
    assert rows is not None, f"no table begins with {first_column}"
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows[1].splitlines()]


def leaves_of_schema(schema: dict[str, Any], path: str = "") -> set[str]:
    """Paths of the fields of a schema that hold no further fields, through the items of lists."""
    properties = schema.get("items", schema).get("properties")
    if properties is None:
        return {path}
    below = properties.items()
    return {leaf for name, each in below for leaf in leaves_of_schema(each, f"{path}.{name}".lstrip("."))}


def spec_of(kind: str) -> dict[str, Any]:
    definition = yaml.safe_load((REPOSITORY / "crds" / f"{kind}.yaml").read_text(encoding="utf-8"))
    return definition["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def has(owner: Any, path: str) -> bool:
    """Whether a class has such a field, through the classes of the fields on the path, and of the items of tuples."""
    name, _, rest = path.partition(".")
    if get_args(owner):
        return any(has(each, path) for each in get_args(owner))
    if isinstance(owner, type) and issubclass(owner, BaseModel):
        known = {name: field.annotation for name, field in owner.model_fields.items()}
    else:
        known = get_type_hints(owner) if is_dataclass(owner) else {}
        known = {field: known[field] for field in known if field in {each.name for each in fields(owner)}}
    return name in known and (not rest or has(known[name], rest))


def path_in_contract(owner: type[BaseModel], resource: str) -> str | None:
    """Returns the path of a resource's field in the contract, with a unit if it is a time; None if there is none."""
    snake = re.sub(r"(?=[A-Z])", "_", resource).lower()
    return next((path for path in (snake, f"{snake}_seconds") if has(owner, path)), None)


def same_name(contract: str, core: str) -> bool:
    """Whether the last parts of two paths are one name."""
    return contract.rpartition(".")[2] == core.rpartition(".")[2]


ZONES, POOLS = table("TenantZone `spec`"), table("ZonePool `spec`")


@pytest.mark.parametrize("row", ZONES, ids=lambda row: row[0])
def test_a_field_of_a_zone_has_the_name_that_the_glossary_says(row):
    resource, core = row[:2]
    assert resource in leaves_of_schema(spec_of("tenantzones"))
    contract = path_in_contract(ZoneConfig, resource)
    assert contract is not None
    if core not in OUTSIDE:
        assert has(ZoneSpec, core)
        assert same_name(contract, core)


@pytest.mark.parametrize("row", POOLS, ids=lambda row: row[0])
def test_a_field_of_a_pool_has_the_name_that_the_glossary_says(row):
    resource, core = row[:2]
    assert resource in leaves_of_schema(spec_of("zonepools"))
    contract = path_in_contract(PoolConfig, resource)
    assert contract is not None
    if core not in OUTSIDE:
        owner, _, path = core.partition(".")
        assert has(CORE[owner], path)
        assert same_name(contract, path)


def test_each_field_of_a_zone_is_in_the_glossary():
    declared = leaves_of_schema(spec_of("tenantzones")) - {"pool"}
    assert {row[0] for row in ZONES} == declared


def test_the_glossary_has_each_reason_and_no_other():
    causes = {row[0]: row[1] for row in table("Reason")}
    assert {reason for reason, of in causes.items() if of in ("evictions", "both")} == set(get_args(EvictionReason))
    assert {reason for reason, of in causes.items() if of in ("preemptions", "both")} == set(get_args(PreemptionReason))
