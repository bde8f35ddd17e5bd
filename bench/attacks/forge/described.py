"""Draws requests from the API server's OpenAPI description, with schemathesis."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import schemathesis
from schemathesis import GenerationMode
from schemathesis.core import NotSet

from bench.attacks.forge.forging import Forged, draw, on_the_wire

_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def draw_described(
    description: dict[str, Any], headers: Mapping[str, str], count: int, seed_number: int
) -> list[Forged]:
    """Draw about ``count`` requests, the same number for each operation, half of them valid and half invalid.

    The requests ask for short answers, because a client that waits for a long answer is no finding.

    Args:
        description: the server's OpenAPI description.
        headers: the client's credentials.
        count: the total number; operations without parameters have fewer different requests.
        seed_number: equal seeds give equal requests.
    """
    operations = [each.ok() for each in schemathesis.openapi.from_dict(description).get_all_operations()]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    each = max(1, count // (len(operations) * len(modes)))
    return [
        _forged(case, headers)
        for operation in operations
        for mode in modes
        for case in draw(operation.as_strategy(generation_mode=mode), each, seed_number)
    ]


def _forged(case: Any, headers: Mapping[str, str]) -> Forged:
    query = f"?{urlencode(case.query, doseq=True, errors='replace')}" if case.query else ""
    shown = {**{name: _on_one_line(str(value)) for name, value in (case.headers or {}).items()}, **headers}
    body = None
    if not isinstance(case.body, NotSet):
        # Always send JSON, because only routes that no tenant can reach accept forms.
        body = json.dumps(_brief(case.body), default=repr).encode("utf-8", "surrogatepass")
        shown.setdefault("Content-Type", "application/json")
    return Forged(on_the_wire(case.method, case.formatted_path + query, shown, body))


def _on_one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def _brief(body: Any) -> Any:
    """Returns the body with limits on the number of tokens to generate."""
    if not isinstance(body, dict):
        return body
    long = {name: 1 for name in _LENGTHS if not isinstance(body.get(name), int) or body[name] > 1}
    return {**body, **long}
