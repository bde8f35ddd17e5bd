"""Writes what ``kubectl tenantzone doctor`` compares a cluster with: the schemas, and the operator's rights.

Run it after a change in ``crds/`` or ``manifests/base/rbac.yaml``: python -m hack.generate.shipped
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
SHIPPED = REPOSITORY / "operator" / "tenantzone_cli" / "doctor" / "shipped.json"


def shipped() -> str:
    """The file's content."""
    definitions = [yaml.safe_load(file.read_text()) for file in sorted((REPOSITORY / "crds").glob("*.yaml"))]
    objects = list(yaml.safe_load_all((REPOSITORY / "manifests" / "base" / "rbac.yaml").read_text()))
    content = {
        "definitions": {
            definition["metadata"]["name"]: {
                version["name"]: _silent(version["schema"]["openAPIV3Schema"])
                for version in definition["spec"]["versions"]
            }
            for definition in definitions
        },
        "rights": [right for body in objects if body["kind"] in ("ClusterRole", "Role") for right in _rights(body)],
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _silent(schema: Any) -> Any:
    """A schema without its texts: other words are no other schema."""
    if isinstance(schema, Mapping):
        return {key: _silent(value) for key, value in schema.items() if not _is_text(key, value)}
    return [_silent(entry) for entry in schema] if isinstance(schema, list) else schema


def _is_text(key: str, value: Any) -> bool:
    return key in ("description", "message", "messageExpression") and isinstance(value, str)


def _rights(role: Mapping[str, Any]) -> Iterator[dict[str, str | None]]:
    namespace = role["metadata"].get("namespace") if role["kind"] == "Role" else None
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [None]):
                        yield {
                            "namespace": namespace,
                            "group": group,
                            "resource": resource,
                            "verb": verb,
                            "name": name,
                        }


if __name__ == "__main__":
    SHIPPED.write_text(shipped())
