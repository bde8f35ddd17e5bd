"""JSON schemas for kubeconform, from what an API server says of its kinds, built-in ones and CRDs alike."""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hack.controlplane import Cluster

LOCATION = "{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
"""The files' names, as kubeconform's ``-schema-location`` takes them."""

_PREFIX = "#/components/schemas/"


def write_schemas(cluster: Cluster, folder: Path) -> None:
    """Write a schema for each kind. They are strict: a field that the kind does not have is an error."""
    for path in _get(cluster, "/openapi/v3")["paths"]:
        if path.startswith("apis/") or path == "api/v1":
            _write_kinds(_schemas(cluster, path), folder)


def describes_its_kinds(cluster: Cluster) -> bool:
    """Whether the API server has a schema for each CRD that it serves; it publishes them a little later."""
    definitions = json.loads(cluster.kubectl("get", "crds", "--output=json").stdout)["items"]
    paths = _get(cluster, "/openapi/v3")["paths"]
    for spec in (definition["spec"] for definition in definitions):
        path = f"apis/{spec['group']}/{spec['versions'][0]['name']}"
        if path not in paths or not any(name.endswith(spec["names"]["kind"]) for name in _schemas(cluster, path)):
            return False
    return True


def _schemas(cluster: Cluster, path: str) -> dict[str, Any]:
    schemas: dict[str, Any] = _get(cluster, f"/openapi/v3/{path}").get("components", {}).get("schemas", {})
    return schemas


def _get(cluster: Cluster, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", f"--raw={path}").stdout)
    return found


def _write_kinds(schemas: dict[str, Any], folder: Path) -> None:
    strict = {name: _strict(schema) for name, schema in schemas.items()}
    for name, schema in strict.items():
        kinds = schema.get("x-kubernetes-group-version-kind", [])
        # Parts that many kinds share, such as DeleteOptions, belong to all of them and are no object.
        if len(kinds) == 1 and not name.endswith("List"):
            (kind,) = kinds
            # kubeconform uses v1 in place of an empty group.
            file = folder / (kind["group"] or kind["version"]) / f"{kind['kind'].lower()}_{kind['version']}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            needed = {part: strict[part] for part in _reachable(strict, name)}
            file.write_text(json.dumps({"$ref": _PREFIX + name, "components": {"schemas": needed}}))


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Without room for other fields, wherever the schema says which ones there are."""
    made = copy.copy(dict(schema))
    if "properties" in made:
        made["properties"] = {name: _strict(value) for name, value in made["properties"].items()}
        if not made.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    if isinstance(made.get("additionalProperties"), Mapping):
        made["additionalProperties"] = _strict(made["additionalProperties"])
    if "items" in made:
        made["items"] = _strict(made["items"])
    return made


def _reachable(schemas: Mapping[str, Any], name: str) -> set[str]:
    """The names of a schema and of all that it refers to, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_references(schemas[name]))
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        reference = schema.get("$ref")
        # A kind may have a field of that name, as CRDs have.
        if isinstance(reference, str):
            yield reference.removeprefix(_PREFIX)
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
