"""Defines and renders findings, the results of ``doctor``'s checks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding."""

    OK = "OK"
    WARN = "WARN"
    """Zones are enforced, but there is another problem, or a check was not possible."""
    FAIL = "FAIL"
    """Zones are not enforced as declared, or will soon not be enforced."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking one subject, with advice."""

    level: Level
    subject: str
    message: str
    advice: str = ""
    """Advice on what to do; empty if there is nothing to do."""


def ok(subject: str, message: str) -> Finding:
    """Returns a finding that says that the subject has no problem."""
    return Finding(Level.OK, subject, message)


def warn(subject: str, message: str, advice: str = "") -> Finding:
    """Returns a finding about a possible problem, or about a check that was not possible."""
    return Finding(Level.WARN, subject, message, advice)


def fail(subject: str, message: str, advice: str = "") -> Finding:
    """Returns a finding about a problem that prevents the enforcement of zones."""
    return Finding(Level.FAIL, subject, message, advice)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Iterates over the findings as lines of text: one per finding, one per advice, and the counts at the end."""
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.level:<4}  {finding.subject:<{width}}  {finding.message}"
        if finding.advice:
            yield f"{'':<4}  {'':<{width}}  -> {finding.advice}"
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    yield ""
    yield f"{counts[Level.OK]} ok, {counts[Level.WARN]} warnings, {counts[Level.FAIL]} failures"


def name_some(names: Sequence[str], max_names: int = 5) -> str:
    """Returns the first ``max_names`` names, separated by commas, and the number of the remaining names."""
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more
