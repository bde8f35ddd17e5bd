"""Defines findings, which are the results of ``doctor``'s checks, and renders them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding."""

    OK = "OK"
    WARN = "WARN"
    """Zones are enforced, but something else is wrong, or could not be checked."""
    FAIL = "FAIL"
    """Zones are not enforced as declared, or soon will not be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check of one subject, with advice on what to do."""

    level: Level
    subject: str
    message: str
    advice: str = ""
    """Advice on what to do; empty if there is nothing to do."""


def ok(subject: str, message: str) -> Finding:
    """Returns a finding without a problem."""
    return Finding(Level.OK, subject, message)


def warn(subject: str, message: str, advice: str = "") -> Finding:
    """Returns a finding that something may be wrong, or could not be checked."""
    return Finding(Level.WARN, subject, message, advice)


def fail(subject: str, message: str, advice: str = "") -> Finding:
    """Returns a finding that something is broken."""
    return Finding(Level.FAIL, subject, message, advice)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yields the findings as lines for a person: one per finding, one per advice, and the counts at the end."""
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.level:<4}  {finding.subject:<{width}}  {finding.message}"
        if finding.advice:
            yield f"{'':<4}  {'':<{width}}  -> {finding.advice}"
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    yield ""
    yield f"{counts[Level.OK]} ok, {counts[Level.WARN]} warnings, {counts[Level.FAIL]} failures"


def name_some(names: Sequence[str], max_names: int = 5) -> str:
    """Returns the first names, separated by commas, and the number of the others."""
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more
