"""Reads counters from what engines publish for Prometheus."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from bench.gpu.engines import Engine

OPEN_METRICS: Final[Mapping[str, str]] = MappingProxyType({"TENANTZONE_OPEN_ROUTES": "/metrics"})
"""The environment of a zones engine that publishes vLLM's own metrics without a key."""


async def vllm_metrics(engine: Engine) -> str:
    """Fetch vLLM's own metrics as text; a zones engine must have been started with `OPEN_METRICS`.

    Raises:
        httpx.HTTPError: the engine does not publish them.
    """
    return (await engine.client.get(f"{engine.url}/metrics")).raise_for_status().text


def total(text: str, name: str, **labels: str) -> float:
    """Add up all series of one metric.

    Args:
        text: in Prometheus' text format.
        name: of the samples, including ``_total`` or ``_count``.
        labels: that a series must have; other series do not count.
    """
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
