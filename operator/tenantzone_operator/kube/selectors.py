"""Evaluates label selectors, with the API server's semantics."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Returns whether a selector matches these labels. Unlike in Kubernetes, an empty selector matches nothing.

    Args:
        selector: a ``LabelSelector``, whose ``matchLabels`` and ``matchExpressions`` must all be true.
        labels: the object's labels.
    """
    wanted = selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", [])
    if not wanted and not expressions:
        return False
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _meets(labels.get(expression["key"]), expression["operator"], expression.get("values", []))
        for expression in expressions
    )


def _meets(value: str | None, operator: str, values: list[str]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            # As in Kubernetes, NotIn matches an object without the label.
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def query(selector: Mapping[str, Any]) -> str | None:
    """Returns a selector as the ``labelSelector`` parameter of a request; None if it can't match any object.

    The API server refuses requirements with keys or values that no label can have. So this function evaluates such
    requirements itself, and leaves them out of the query.
    """
    requirements = list(_requirements(selector))
    if not requirements or None in requirements:
        return None
    return ",".join(filter(None, requirements))


def _requirements(selector: Mapping[str, Any]) -> Iterator[str | None]:
    """Iterates over the requirements' texts. A text is empty if all objects meet it, and None if none can meet it."""
    for key, value in selector.get("matchLabels", {}).items():
        yield _requirement(key, "In", [value])
    for expression in selector.get("matchExpressions", []):
        yield _requirement(expression["key"], expression["operator"], expression.get("values", []))


def _requirement(key: str, operator: str, values: list[str]) -> str | None:
    possible = [value for value in values if value == "" or _NAME.fullmatch(value)]
    match operator:
        case "In" if _is_key(key) and possible:
            return f"{key} in ({','.join(possible)})"
        case "NotIn":
            return f"{key} notin ({','.join(possible)})" if _is_key(key) and possible else ""
        case "Exists" if _is_key(key):
            return key
        case "DoesNotExist":
            return f"!{key}" if _is_key(key) else ""
    return None


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    is_prefix = len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix) is not None
    return _NAME.fullmatch(name) is not None and (is_prefix or not slash)
