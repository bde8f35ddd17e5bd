"""What a case shows of a client, and all of it as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_LONGEST_ERROR = 150


class Outcome(StrEnum):
    """What became of a kubeconfig's field."""

    WORKS = "works"
    REFUSED = "refused"
    """By an error that names what is wrong."""
    FAILS = "fails"
    """By an error that does not."""
    WRONG = "SILENTLY WRONG"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one client made of one case."""

    outcome: Outcome
    error: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one client costs; medians."""

    import_seconds: float
    resident_mb: float
    """When it has read one object."""
    with_kopf_mb: float
    """The same in a process that has kopf, as the operator's does."""
    per_second: float
    """Objects read."""
    processor_ms: float
    """Of the client, for each."""


def judge(error: str | None, *, as_asked: bool, names: str) -> Finding:
    """The outcome on what came of a request.

    Args:
        error: None where it was answered.
        as_asked: whether the request was what the kubeconfig says.
        names: what an error has to speak of to be of use.
    """
    if error is not None:
        line = " ".join(error.split())[:_LONGEST_ERROR]
        return Finding(Outcome.REFUSED if names.lower() in error.lower() else Outcome.FAILS, line)
    return Finding(Outcome.WORKS if as_asked else Outcome.WRONG)


def matrix(findings: Mapping[str, Mapping[str, Finding]]) -> Sequence[str]:
    """The lines of a table of cases by clients, then the errors that were seen.

    Args:
        findings: by client, then by case; each client has the same cases.
    """
    clients = list(findings)
    cases = list(findings[clients[0]])
    first = max(map(len, cases)) + 2
    lines = [" " * first + "".join(f"{client:<20}" for client in clients)]
    lines += [
        f"{case:<{first}}" + "".join(f"{findings[client][case].outcome:<20}" for client in clients) for case in cases
    ]
    errors = [
        f"{client}, {case}: {finding.error}"
        for case in cases
        for client in clients
        if (finding := findings[client][case]).error
    ]
    return [line.rstrip() for line in [*lines, "", *errors]]


def costs(figures: Mapping[str, Figures]) -> Sequence[str]:
    """The lines of a table of what clients cost."""
    return [
        f"{'':<20}{'import s':>10}{'MB':>8}{'MB with kopf':>16}{'reads/s':>10}{'CPU ms/read':>13}",
        *(
            f"{client:<20}{each.import_seconds:>10.2f}{each.resident_mb:>8.0f}{each.with_kopf_mb:>16.0f}"
            f"{each.per_second:>10.0f}{each.processor_ms:>13.2f}"
            for client, each in figures.items()
        ),
    ]
