"""The parts of a rule."""

from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["page", "warning"]
"""page: wake an operator. warning: an operator should look on the same day."""


@dataclass(frozen=True, slots=True)
class Recording:
    """An expression whose result is kept under a name, for alerts and dashboard alike."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An expression that should have no result."""

    name: str
    severity: Severity
    expression: str
    hold: str
    """How long it must have a result, as a Prometheus duration; empty: no time."""
    summary: str
    """One line, with the labels that say where."""
    description: str
    """What is wrong and for which zone, with the value."""

    @property
    def runbook(self) -> str:
        """Its page in ``docs/runbooks``."""
        return f"{self.name}.md"


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other, in this order."""

    name: str
    interval: str
    rules: tuple[Recording | Alert, ...]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))


def rule_file(groups: tuple[Group, ...], runbooks: str) -> dict[str, Any]:
    """The content of a rule file, and of a PrometheusRule's spec.

    Args:
        groups: the rules.
        runbooks: the URL of the pages of ``docs/runbooks``.
    """
    return {"groups": [_group(group, runbooks) for group in groups]}


def _group(group: Group, runbooks: str) -> dict[str, Any]:
    rules = [
        _alert(rule, runbooks) if isinstance(rule, Alert) else {"record": rule.name, "expr": _lines(rule.expression)}
        for rule in group.rules
    ]
    return {"name": group.name, "interval": group.interval, "rules": rules}


def _alert(alert: Alert, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": _lines(alert.expression),
        **({"for": alert.hold} if alert.hold else {}),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks.rstrip('/')}/{alert.runbook}",
        },
    }


def _lines(expression: str) -> str:
    """One condition in a line."""
    return expression.replace(" and ", "\nand ").replace(" or ", "\nor ")
