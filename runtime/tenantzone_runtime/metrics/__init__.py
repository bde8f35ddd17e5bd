"""The metrics of one engine: ``families`` declares them, and ``figures`` has the snapshot that a scrape encodes."""

from tenantzone_runtime.metrics.families import families
from tenantzone_runtime.metrics.family import Family
from tenantzone_runtime.metrics.figures import EngineFigures, ZoneFigures

__all__ = ["EngineFigures", "Family", "ZoneFigures", "families"]
