"""Describes the operator's metrics: their names, types, labels and help texts, without samples."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """A metric's name, type, labels and help text."""

    name: str
    """Name of the metric as Prometheus scrapes it."""
    type: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    help: str


def gauge(name: str, text: str, *labels: str) -> Family:
    """Returns the description of a gauge with these labels."""
    return Family(name, "gauge", labels, text)


def info(name: str, text: str, *labels: str) -> Family:
    """Returns the description of an info metric, whose value is always 1 and whose labels contain the information."""
    return Family(f"{name}_info", "info", labels, text)
