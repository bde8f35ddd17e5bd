"""Reads the CRD schemas and RBAC rights that this version ships, and compares the cluster's schemas with them."""

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
        namespace: the permission's namespace; None for all namespaces that the operator watches.
        name: the name of the only object that the permission covers; None for all objects.
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
    """The CRDs' schemas and the operator's rights, as this version ships them."""

    definitions: Mapping[str, Mapping[str, Any]]
    """Schemas by the CRD's name, then by version, without descriptions and messages."""
    rights: Sequence[Right]
    """Rights that the operator needs."""


def read_shipped() -> Shipped:
    """Read the schemas and rights that this version ships, from the file in the package."""
    content = json.loads(resources.files(__package__).joinpath(_FILE).read_text())
    return Shipped(content["definitions"], [Right(**right) for right in content["rights"]])


@dataclass(frozen=True, slots=True)
class Difference:
    """A place at which the installed schema differs from the shipped schema."""

    path: str
    is_missing: bool
    """Whether the installed schema lacks the field at this path, so that the API server drops the field's value."""


def differences(shipped: Any, installed: Any, path: str = "") -> Iterator[Difference]:
    """Iterates over the differences between an installed schema and the shipped schema. Texts are not compared."""
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
    """Converts a field's path in a schema to its path in an object, such as ``spec.lending.grace``."""
    return path.replace(".properties", "").replace(".items", "[]").removeprefix(".")
