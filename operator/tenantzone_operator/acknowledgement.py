"""What the engines have acknowledged, by their own reports. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.report import EngineReport
from tenantzone_operator.conditions import Condition, Reason, Type

_REMEMBERED_SNAPSHOTS = 64
_LONGEST_ERROR = 1000


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one ready engine."""

    pod: str
    report: EngineReport | None
    error: str = ""
    """Why there is no report."""
    blocks: int | None = None
    """The engine's size, even if it does not answer now; None: it never told."""

    @property
    def nack(self) -> str:
        """Why the engine refuses the newest config, in its own words; empty if it does not."""
        rejected = self.report.config.rejected if self.report is not None else None
        return rejected.error[:_LONGEST_ERROR] if rejected is not None else ""


class History:
    """The snapshots that were given out, and since which of them each zone has been as it is now.

    An engine that still has an older snapshot enforces a zone all the same if the zone has not changed since. So one
    zone's change does not make all other zones of the pool look unacknowledged.
    """

    def __init__(self) -> None:
        self._newest: RuntimeConfig | None = None
        self._hashes: dict[int, str] = {}
        self._since: dict[str, int] = {}

    @property
    def newest(self) -> RuntimeConfig | None:
        return self._newest

    def record(self, config: RuntimeConfig) -> None:
        """Note that the config is the newest one now. Harmless if it was already."""
        before = {entry.name: entry for entry in self._newest.zones} if self._newest is not None else {}
        self._since = {
            entry.name: self._since[entry.name] if before.get(entry.name) == entry else config.generation
            for entry in config.zones
        }
        self._newest = config
        self._hashes[config.generation] = config.hash
        while len(self._hashes) > _REMEMBERED_SNAPSHOTS:
            del self._hashes[min(self._hashes)]

    def acknowledges(self, report: EngineReport, zone: str) -> bool:
        """Whether the engine enforces the zone as it is in the newest snapshot."""
        generation = report.config.applied_generation
        if generation is None or zone not in self._since:
            return False
        # The same content under another generation is the same: so it is after a ConfigMap was lost and written again.
        if self.acknowledges_newest(report):
            return True
        return generation >= self._since[zone] and self._hashes.get(generation) == report.config.applied_hash

    def acknowledges_newest(self, report: EngineReport) -> bool:
        """Whether the engine has applied the newest snapshot itself."""
        return self._newest is not None and report.config.applied_hash == self._newest.hash


def programmed(observations: Sequence[Observation], acknowledged: Sequence[bool], nothing_waits: str) -> Condition:
    """The Programmed condition of something that the engines should enforce.

    Args:
        observations: one for each ready engine.
        acknowledged: for each of them, whether it has acknowledged.
        nothing_waits: what to say if there is no engine.
    """
    if not observations:
        return Condition(Type.PROGRAMMED, "False", Reason.NO_ENGINES, nothing_waits)
    total = f"{len(observations)} engine{'s' if len(observations) > 1 else ''}"
    for observation in observations:
        if observation.nack:
            message = f"{observation.pod} refuses the newest config and keeps the one before: {observation.nack}"
            return Condition(Type.PROGRAMMED, "False", Reason.CONFIG_REJECTED, message)
    for observation in observations:
        if observation.report is None:
            message = f"{observation.pod} does not answer: {observation.error}"
            return Condition(Type.PROGRAMMED, "Unknown", Reason.ENGINE_UNREACHABLE, message)
    if all(acknowledged):
        return Condition(Type.PROGRAMMED, "True", Reason.ACKNOWLEDGED, f"acknowledged by {total}")
    waiting = next(observation.pod for observation, done in zip(observations, acknowledged, strict=True) if not done)
    message = f"acknowledged by {sum(acknowledged)} of {total}; waiting for {waiting}"
    return Condition(Type.PROGRAMMED, "Unknown", Reason.PENDING, message)
