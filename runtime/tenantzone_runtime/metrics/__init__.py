"""The metrics of one engine, all declared in ``families``; one scrape is one snapshot of them, ``figures``."""

from tenantzone_runtime.metrics.families import families
from tenantzone_runtime.metrics.family import Family
from tenantzone_runtime.metrics.figures import EngineFigures, ZoneFigures

__all__ = ["EngineFigures", "Family", "ZoneFigures", "families"]
