"""The default group: one stock and one zones engine, and the measurements that need nothing else."""

from collections.abc import Sequence
from pathlib import Path

from bench.gpu.engines import EngineSpec
from bench.gpu.group import Group
from bench.gpu.shapes import Shape
from tenantzone_contract.config import ZoneConfig


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    zones = (ZoneConfig(name="quiet", tenant="quiet", generation=1, offload="Never"),)
    return EngineSpec("stock", None), EngineSpec("zones", zones, flags=("--cpu-tier", shape.cpu_tier))


GROUP = Group("default", _engines, ())
