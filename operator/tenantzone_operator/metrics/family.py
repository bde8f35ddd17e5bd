"""What can be said of one of the operator's metrics without any sample of it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """A metric's name and type, its labels, and what it tells."""

    name: str
    """As a scrape shows it."""
    type: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    help: str


def gauge(name: str, text: str, *labels: str) -> Family:
    """A gauge with these labels."""
    return Family(name, "gauge", labels, text)


def info(name: str, text: str, *labels: str) -> Family:
    """An info metric: one series that is always 1, and whose labels tell something."""
    return Family(f"{name}_info", "info", labels, text)
