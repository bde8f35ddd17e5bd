"""Writes docs/reference/resources.md, the reference of all fields of all kinds, from crds/.

Run it after a change of a schema: make crd-reference
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "reference" / "resources.md"
KINDS = ("tenantzones", "zonepools", "kvstorages", "kvcachegroups")

_PAGE = Template("""\
# Fields of TenantZone, ZonePool, KVStorage and KVCacheGroup

<!-- Written by `make crd-reference` from crds/. Do not edit by hand. -->

This page lists all fields of `tenantzone.io/v1alpha1`. `kubectl explain tz.spec --recursive` shows the same
descriptions, and `manifests/samples/uses/` has an example for each use. [The API](../api.md) lists what may change in a
version.

- A path that ends with `[]` describes each item of a list, and a path that ends with `.*` each value of a map.
- If a field accepts an integer or a string, the bounds apply to the integer, and the length and pattern to the string.
- Durations have a form such as `90s`, `10m`, `1h30m` or `500ms`.
- `kubectl apply` refuses fields that are not listed here. If another client sends them, the API server drops them.

$kinds
""")

_KIND = Template("""\
## $kind

$description

`$plural.tenantzone.io`, in $where; short name `$short`, category `$category`. The status is a subresource.

### $kind: spec

$spec

### $kind: rules

Before the API server stores an object, it checks these rules, in addition to types and bounds.

$rules

### $kind: status

The operator writes the status. [The operator's page](../operator.md#status) lists the conditions and their reasons, and
states how old figures may be.

$status

### $kind: columns

`kubectl get $short` shows these columns.

$columns
""")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a resource, with its path and its schema."""

    path: str
    schema: dict[str, Any]
    is_required: bool


def page() -> str:
    """The page's content."""
    kinds = (yaml.safe_load((REPOSITORY / "crds" / f"{name}.yaml").read_text()) for name in KINDS)
    return _PAGE.substitute(kinds="\n".join(_kind(crd["spec"]) for crd in kinds)).rstrip() + "\n"


def _kind(crd: dict[str, Any]) -> str:
    (version,) = crd["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    spec, status = (list(fields(schema["properties"][part], part)) for part in ("spec", "status"))
    everything = [Field("", schema, True), *spec, *status]
    return _KIND.substitute(
        kind=crd["names"]["kind"],
        description=schema["description"],
        plural=crd["names"]["plural"],
        where="a namespace" if crd["scope"] == "Namespaced" else "no namespace",
        short=crd["names"]["shortNames"][0],
        category=crd["names"]["categories"][0],
        spec=_field_list(spec[1:]),
        rules="\n".join(rule for field in everything for rule in _rules(field)),
        status=_field_list(status[1:]),
        columns=_columns(version["additionalPrinterColumns"]),
    )


def fields(schema: dict[str, Any], path: str, *, is_required: bool = False) -> Iterator[Field]:
    """A field and all below it, in the order of the schema."""
    yield Field(path, schema, is_required)
    for name, below in schema.get("properties", {}).items():
        yield from fields(below, f"{path}.{name}", is_required=name in schema.get("required", ()))
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from fields(schema["additionalProperties"], f"{path}.*")


def _field_list(rows: list[Field]) -> str:
    return "\n".join(map(_entry, rows))


def _entry(field: Field) -> str:
    facts = [*_type(field.schema), *(["required"] if field.is_required else [])]
    default = field.schema.get("default")
    if default not in (None, {}):
        facts.append(f"default {_code(_plain(default))}")
    return f"- **{_code(field.path)}**: {'; '.join(facts)}\\\n  {field.schema['description']}"


def _type(schema: dict[str, Any]) -> Iterator[str]:
    yield "integer or string" if schema.get("x-kubernetes-int-or-string") else _name(schema)
    if "enum" in schema:
        yield " or ".join(_code(value) for value in schema["enum"])
    if bounds := _range(schema.get("minimum"), schema.get("maximum")):
        yield bounds
    for key, what in (("Length", "characters"), ("Items", "items"), ("Properties", "entries")):
        if bounds := _range(schema.get(f"min{key}"), schema.get(f"max{key}")):
            yield f"{bounds} {what}"
    if "pattern" in schema:
        yield _code(schema["pattern"])
    if keys := schema.get("x-kubernetes-list-map-keys"):
        yield "one for each " + _code(", ".join(keys))


def _name(schema: dict[str, Any]) -> str:
    if "additionalProperties" in schema:
        return f"map of {schema['additionalProperties']['type']}s"
    if schema["type"] == "array":
        return f"list of {schema['items']['type']}s"
    return str(schema.get("format", schema["type"]))


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f"{minimum} to {maximum}"
    if minimum is not None:
        return f"at least {minimum}"
    return "" if maximum is None else f"at most {maximum}"


def _rules(field: Field) -> Iterator[str]:
    for rule in field.schema.get("x-kubernetes-validations", ()):
        where = field.path + rule.get("fieldPath", "")
        yield f"- {_code(where) if where else 'the object'}: {rule['message']}\\\n  {_code(rule['rule'])}"


def _columns(columns: list[dict[str, Any]]) -> str:
    lines = ["| column | shown | from |", "|---|---|---|"]
    for column in columns:
        shown = "with `-o wide`" if column.get("priority") else "always"
        lines.append(f"| {column['name']} | {shown} | {_code(column['jsonPath'])} |")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    """Formats a value as in YAML, on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
