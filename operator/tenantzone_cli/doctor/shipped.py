"""Reads the CRD schemas and RBAC rights that this version ships, and compares the cluster's schemas to them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

_FILE = "shipped.json"
_TEXTS = ("description", "message", "messageExpression")


@dataclass(frozen=True, slots=True)
class Right:
    """An RBAC permission for one verb on a resource.

    Attributes:
        namespace: the namespace of the permission; None for the namespaces that the operator watches.
        name: the name of the only object; None for all objects.
    """

    group: str
    resource: str
    verb: str
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        resource, slash, subresource = self.resource.partition("/")
        what = f"{resource}.{self.group}" if self.group else resource
        return f"{self.verb} {what}{slash}{subresource}" + (f" {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Shipped:
    """The CRDs' schemas by name and version, and the operator's rights, as this version ships them."""

    definitions: Mapping[str, Mapping[str, Any]]
    """Schemas without their texts, by the CRD's name and the version."""
    rights: Sequence[Right]
    """Rights that the operator needs."""


def read_shipped() -> Shipped:
    """Read the schemas and rights that this version ships, from the file in the package."""
    content = json.loads(resources.files(__package__).joinpath(_FILE).read_text())
    return Shipped(content["definitions"], [Right(**right) for right in content["rights"]])


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which the installed schema differs from the shipped schema."""

    path: str
    is_missing: bool
    """Whether the installed schema lacks this field, so that the API server drops its value."""


def differences(shipped: Any, installed: Any, path: str = "") -> Iterator[Difference]:
    """Yields the differences between an installed schema and the shipped schema, except for descriptions."""
    if isinstance(shipped, Mapping) and isinstance(installed, Mapping):
        fields = path.endswith(".properties")
        for key in sorted(shipped.keys() | installed.keys()):
            if key in shipped and key not in installed:
                yield Difference(f"{path}.{key}", is_missing=fields)
            elif key in installed and key not in shipped:
                if fields or key not in _TEXTS:
                    yield Difference(f"{path}.{key}", is_missing=False)
            else:
                yield from differences(shipped[key], installed[key], f"{path}.{key}")
    elif isinstance(shipped, list) and isinstance(installed, list) and len(shipped) == len(installed):
        for index, (left, right) in enumerate(zip(shipped, installed, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif shipped != installed:
        yield Difference(path, is_missing=False)


def field_path(path: str) -> str:
    """Returns a field's path in a resource, such as ``spec.lending.grace``, from its path in the schema."""
    return path.replace(".properties", "").replace(".items", "[]").removeprefix(".")
