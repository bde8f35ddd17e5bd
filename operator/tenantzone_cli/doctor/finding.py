"""What a check says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "OK"
    WARN = "WARN"
    """It works, but something is not as it should be, or could not be checked."""
    FAIL = "FAIL"
    """Zones are not enforced as declared, or soon will not be."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    subject: str
    message: str
    advice: str = ""
    """What to do; empty if nothing."""


def ok(subject: str, message: str) -> Finding:
    return Finding(Level.OK, subject, message)


def warn(subject: str, message: str, advice: str = "") -> Finding:
    return Finding(Level.WARN, subject, message, advice)


def fail(subject: str, message: str, advice: str = "") -> Finding:
    return Finding(Level.FAIL, subject, message, advice)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """For a person: one line for each finding, and one with what to do."""
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.level:<4}  {finding.subject:<{width}}  {finding.message}"
        if finding.advice:
            yield f"{'':<4}  {'':<{width}}  -> {finding.advice}"
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    yield ""
    yield f"{counts[Level.OK]} ok, {counts[Level.WARN]} warnings, {counts[Level.FAIL]} failures"


def name_some(names: Sequence[str], max_names: int = 5) -> str:
    """The first few of them."""
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more
