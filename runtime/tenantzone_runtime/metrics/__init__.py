"""The metrics of one engine. ``families`` declares the metrics, and ``figures`` has the values for a scrape."""

from tenantzone_runtime.metrics.families import families
from tenantzone_runtime.metrics.family import Family
from tenantzone_runtime.metrics.figures import EngineFigures, ZoneFigures

__all__ = ["EngineFigures", "Family", "ZoneFigures", "families"]
