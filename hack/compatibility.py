"""Checks that a CRD still accepts, with the same meaning, what an older version accepted.

An object written for the older schema must be valid for the newer one, and a client that reads a field must still find
it. So nothing may be removed or tightened; new optional fields, new enum values and wider bounds are allowed. Changes
that can't be judged, such as two different patterns, count as breaking: a person has to review them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Schema = Mapping[str, Any]

_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
_MAY_GO = ("pattern", "format")
"""Checks: without them more is accepted than before."""
_HANDLED = frozenset(
    {"description", "properties", "items", "additionalProperties", "required", "enum", "x-kubernetes-validations"}
    | {*_UPPER_BOUNDS, *_LOWER_BOUNDS, *_MAY_GO}
)
_FIXED_NAMES = ("kind", "listKind", "plural", "singular")
_GROWING_NAMES = ("shortNames", "categories")


def breaks(old: Schema, new: Schema) -> list[str]:
    """Returns what a newer CustomResourceDefinition breaks of an older one; empty if nothing.

    Each line names the version and field, and what happened to it.
    """
    return [*_definition_breaks(old["spec"], new["spec"]), *_version_breaks(old["spec"], new["spec"])]


def newest_release(folder: Path) -> Path | None:
    """Returns the folder of the newest release, among folders named like ``v1.2.3``; None before the first release."""
    return max(folder.glob("v*"), key=_number, default=None)


def read_definitions(folder: Path) -> dict[str, Schema]:
    """The CustomResourceDefinitions in a folder, not in those below it, by name."""
    read = (yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml")))
    return {definition["metadata"]["name"]: definition for definition in read}


def _number(release: Path) -> list[int]:
    return [int(part) for part in release.name.removeprefix("v").split(".")]


def _definition_breaks(old: Schema, new: Schema) -> Iterator[str]:
    for key in ("group", "scope"):
        if old[key] != new[key]:
            yield f"{key}: was {old[key]}, is {new[key]}"
    for key in _FIXED_NAMES:
        if old["names"].get(key) != new["names"].get(key):
            yield f"names.{key}: was {old['names'].get(key)}, is {new['names'].get(key)}"
    for key in _GROWING_NAMES:
        for name in old["names"].get(key, []):
            if name not in new["names"].get(key, []):
                yield f"names.{key}: {name} is gone"


def _version_breaks(old: Schema, new: Schema) -> Iterator[str]:
    versions = {version["name"]: version for version in new["versions"]}
    for version in old["versions"]:
        name, now = version["name"], versions.get(version["name"])
        if now is None:
            yield f"{name}: the version is gone; objects may be stored in it"
            continue
        if version["served"] and not now["served"]:
            yield f"{name}: the version is not served any more"
        for subresource in version.get("subresources", {}):
            if subresource not in now.get("subresources", {}):
                yield f"{name}: the subresource {subresource} is gone"
        yield from _schema_breaks(version["schema"]["openAPIV3Schema"], now["schema"]["openAPIV3Schema"], name)


def _schema_breaks(old: Schema, new: Schema, path: str) -> Iterator[str]:
    yield from _bound_breaks(old, new, path)
    yield from _check_breaks(old, new, path)
    for key in sorted((old.keys() | new.keys()) - _HANDLED):
        if old.get(key) != new.get(key):
            yield f"{path}: {key} was {old.get(key)!r}, is {new.get(key)!r}"
    for name, field in old.get("properties", {}).items():
        now = new.get("properties", {}).get(name)
        if now is None:
            yield f"{path}.{name}: the field is gone"
        else:
            yield from _schema_breaks(field, now, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
            yield from _schema_breaks(old[key], new[key], f"{path}[]")
        elif old.get(key) != new.get(key):
            yield f"{path}: {key} was {old.get(key)!r}, is {new.get(key)!r}"


def _bound_breaks(old: Schema, new: Schema, path: str) -> Iterator[str]:
    for key in _UPPER_BOUNDS:
        if key in new and (key not in old or new[key] < old[key]):
            yield f"{path}: {key} was {old.get(key, 'unset')}, is {new[key]}"
    for key in _LOWER_BOUNDS:
        if key in new and (key not in old or new[key] > old[key]):
            yield f"{path}: {key} was {old.get(key, 'unset')}, is {new[key]}"


def _check_breaks(old: Schema, new: Schema, path: str) -> Iterator[str]:
    for key in _MAY_GO:
        if key in new and new[key] != old.get(key):
            yield f"{path}: {key} was {old.get(key, 'unset')}, is {new[key]}"
    for name in new.get("required", []):
        if name not in old.get("required", []):
            yield f"{path}.{name}: the field is required now"
    if "enum" in new:
        if "enum" not in old:
            yield f"{path}: only {new['enum']} are accepted now"
        for value in old.get("enum", []):
            if value not in new["enum"]:
                yield f"{path}: the value {value!r} is not accepted any more"
    rules = [rule["rule"] for rule in old.get("x-kubernetes-validations", [])]
    added = new.get("properties", {}).keys() - old.get("properties", {}).keys()
    # What no older object has set no rule about it can refuse.
    about_added = tuple(f"!has(self.{name}) ||" for name in added)
    for rule in new.get("x-kubernetes-validations", []):
        if rule["rule"] not in rules and not rule["rule"].startswith(about_added):
            yield f"{path}: a new rule, {rule['rule']}"
