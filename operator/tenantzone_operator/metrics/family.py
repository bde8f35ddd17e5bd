"""The description of one of the operator's metrics, without samples."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """A metric's name, type, labels and help text."""

    name: str
    """Name of the metric in a scrape."""
    type: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    help: str


def gauge(name: str, text: str, *labels: str) -> Family:
    """Returns a gauge with these labels."""
    return Family(name, "gauge", labels, text)


def info(name: str, text: str, *labels: str) -> Family:
    """Returns an info metric: a series that is always 1 and carries its information in labels."""
    return Family(f"{name}_info", "info", labels, text)
