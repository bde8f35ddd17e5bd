"""What can be said of one of the operator's metrics without any sample of it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name and type, its labels, and what it tells."""

    name: str
    """As a scrape shows it."""
    type: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    help: str


def gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, "gauge", labels, text)


def info(name: str, text: str, *labels: str) -> Family:
    return Family(f"{name}_info", "info", labels, text)
