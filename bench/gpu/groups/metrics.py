"""Reads counters from the Prometheus metrics of engines."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from bench.gpu.engines import Engine

OPEN_METRICS: Final[Mapping[str, str]] = MappingProxyType({"TENANTZONE_OPEN_ROUTES": "/metrics"})
"""Environment variables with which a zones engine serves vLLM's own metrics without a key."""


async def vllm_metrics(engine: Engine) -> str:
    """Fetch vLLM's own metrics as text; a zones engine must have been started with `OPEN_METRICS`.

    Raises:
        httpx.HTTPError: the engine does not serve the metrics.
    """
    return (await engine.client.get(f"{engine.url}/metrics")).raise_for_status().text


def total(text: str, name: str, **labels: str) -> float:
    """Returns the sum of all series of one metric.

    Args:
        text: metrics in Prometheus' text format.
        name: the name of the samples, including ``_total`` or ``_count``.
        labels: the labels that a series must have to be counted.
    """
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
