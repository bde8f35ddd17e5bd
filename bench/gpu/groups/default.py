"""The default group: one stock and one zones engine, and the measurements that need nothing else."""

from collections.abc import Sequence
from pathlib import Path

from bench.gpu.engines import EngineSpec
from bench.gpu.group import Group, Phase
from bench.gpu.phases import equal, noisy, reclaim, tenants, throughput
from bench.gpu.shapes import Shape


def _engines(shape: Shape, folder: Path) -> Sequence[EngineSpec]:
    # Only the zone of the equality phase's tier case stores anything in the tier.
    return EngineSpec("stock", None), EngineSpec("zones", tenants.zones(), flags=("--cpu-tier", shape.cpu_tier))


GROUP = Group(
    "default",
    _engines,
    (
        Phase("equal", 120.0, equal.run),
        Phase("noisy", 270.0, noisy.run),
        Phase("reclaim", 120.0, reclaim.run),
        Phase("throughput", 180.0, throughput.run),
    ),
)
