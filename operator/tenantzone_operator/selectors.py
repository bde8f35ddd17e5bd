"""Label selectors, as the API server understands them."""

from collections.abc import Mapping
from typing import Any


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels is selected. A selector that names no label selects nothing here.

    Args:
        selector: a ``LabelSelector``: ``matchLabels`` and ``matchExpressions``, all of which must hold.
        labels: the object's.
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
            # As in Kubernetes, an object without the label is not in any list of values.
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
