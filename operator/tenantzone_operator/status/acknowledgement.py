"""Determines from engines' reports which snapshots and zones the engines have acknowledged, in pure functions."""

from collections.abc import Iterable, Mapping, Sequence

from tenantzone_contract.zone_config.config import RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.fitting import grants, limit_blocks
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import EngineView
from tenantzone_operator.kube.conditions import Condition, Reason, Type
from tenantzone_operator.planning.contradictions import limit_below_reserved

_REMEMBERED_SNAPSHOTS = 64


class History:
    """The published config snapshots, and for each zone the first snapshot that contains its current entry.

    An engine with an older snapshot enforces a zone correctly if the zone has not changed since that snapshot. So a
    change of one zone does not make the other zones of the pool look unacknowledged.
    """

    def __init__(self) -> None:
        self._newest: RuntimeConfig | None = None
        self._newest_bytes = 0
        self._entries: dict[str, ZoneConfig] = {}
        self._hashes: dict[int, str] = {}
        self._lacking: dict[int, dict[str, int]] = {}
        """Blocks that an engine lacks for a zone's reservation in the newest snapshot, by engine size and zone name."""
        self._since: dict[str, int] = {}

    @property
    def newest(self) -> RuntimeConfig | None:
        return self._newest

    @property
    def newest_bytes(self) -> int:
        """Size of the newest snapshot in its ConfigMap, in bytes."""
        return self._newest_bytes

    def record(self, config: RuntimeConfig, size: int) -> None:
        """Record the newest published config. Recording the same config twice changes nothing.

        Args:
            config: the published config.
            size: the config's size in the ConfigMap, in bytes.
        """
        before, self._entries = self._entries, {entry.name: entry for entry in config.zones}
        self._since = {
            entry.name: self._since[entry.name] if _same(before.get(entry.name), entry) else config.generation
            for entry in config.zones
        }
        if config is not self._newest:
            self._lacking = {}
        self._newest = config
        self._newest_bytes = size
        self._hashes[config.generation] = config.hash
        while len(self._hashes) > _REMEMBERED_SNAPSHOTS:
            del self._hashes[min(self._hashes)]

    def acknowledges(self, report: EngineView, entry: ZoneConfig) -> bool:
        """Returns whether every process of the engine enforces the zone's entry in the newest snapshot."""
        if report.lag or not _same(self._entries.get(entry.name), entry):
            return False
        return all(self._has_entry(*enforced, entry) for enforced in report.enforced)

    def _has_entry(self, generation: int | None, config_hash: str | None, entry: ZoneConfig) -> bool:
        """Returns whether the config with this generation and hash contains the zone's entry in the newest snapshot."""
        if generation is None or config_hash is None:
            return False
        # Equal content counts even with another generation, for example after a deleted ConfigMap was written again.
        if self._newest is not None and config_hash == self._newest.hash:
            return True
        return generation >= self._since[entry.name] and self._hashes.get(generation) == config_hash

    def acknowledged_by(self, seen: Observation, entry: ZoneConfig) -> bool:
        """Returns whether an engine acknowledges the zone's entry; False if the engine does not answer."""
        return seen.report is not None and self.acknowledges(seen.report, entry)

    def look_at_sizes(self, observations: Iterable[Observation]) -> None:
        """Discard results for sizes that no engine reports now, because a pod could report a new size each time."""
        sizes = {seen.report.capacity_blocks for seen in observations if seen.report is not None}
        self._lacking = {size: lacking for size, lacking in self._lacking.items() if size in sizes}

    def lacking(self, seen: Observation) -> Mapping[str, int]:
        """Returns the number of blocks that an engine lacks for each zone's reservation, without zones that lack none.

        The result is empty if the engine has not reported.
        """
        if seen.report is None or self._newest is None:
            return {}
        size = seen.report.capacity_blocks
        if size not in self._lacking:
            held = zip(self._newest.zones, grants(self._newest.zones, size), strict=True)
            self._lacking[size] = {zone.name: grant.lacking for zone, grant in held if grant.lacking}
        return self._lacking[size]

    def lacks(self, seen: Observation, zone: str) -> int:
        """Returns the blocks that an engine lacks for a zone's reservation; 0 if the reservation fits."""
        return self.lacking(seen).get(zone, 0)

    def contradiction(self, seen: Observation, zone: str) -> str:
        """Returns how a zone's limit contradicts its reservation in an engine; empty if no contradiction is known.

        An engine with a contradiction is not simply too small: engines with more or fewer blocks may be able to
        enforce the zone.
        """
        entry = self._entries.get(zone)
        if entry is None or seen.report is None:
            return ""
        blocks = seen.report.capacity_blocks
        # If the engine is too small for the reservation, only that is reported, whatever the limit is.
        return limit_below_reserved(entry, blocks) if floor_blocks(entry.reserved, blocks) <= blocks else ""

    def difference(self, seen: Observation, entry: ZoneConfig) -> str:
        """Returns how the amounts that an engine reports for a zone differ from the config's; empty if they are equal.

        The hash of a config alone does not show whether the engine enforces the config.
        """
        assert seen.report is not None, "the engine has acknowledged the entry"
        zone, blocks = seen.zones.get(entry.name), seen.report.capacity_blocks
        if zone is None:
            return "does not report the zone"
        reserved = 0 if self.lacks(seen, entry.name) else floor_blocks(entry.reserved, blocks)
        limit = limit_blocks(entry.limit, blocks)
        if (zone.generation, zone.reserved, zone.limit) == (entry.generation, reserved, limit):
            return ""
        return (
            f"reports the zone with generation {zone.generation}, reserved {zone.reserved} and limit {zone.limit}, "
            f"instead of generation {entry.generation}, reserved {reserved} and limit {limit}"
        )

    def acknowledges_newest(self, report: EngineView) -> bool:
        """Returns whether every process of the engine enforces the newest snapshot, with the same keys and salts."""
        if self._newest is None or report.lag:
            return False
        newest = self._newest.hash
        return all(config_hash == newest for _, config_hash in report.enforced)


def _same(known: ZoneConfig | None, entry: ZoneConfig) -> bool:
    # Compare identity first, because a zone's entry is usually the same object, and comparing fields is slow.
    return known is entry or known == entry


def programmed(
    observations: Sequence[Observation],
    acknowledged: Sequence[bool],
    nothing_waits: str,
    not_written: str = "",
    elsewhere: str = "",
) -> Condition:
    """Returns the Programmed condition of a zone or pool that the engines should enforce.

    Args:
        observations: one observation for each ready engine that can enforce the zone or pool.
        acknowledged: for each engine, whether it has acknowledged the zone or pool.
        nothing_waits: the condition's message if there are no engines.
        not_written: why the newest config can't be written; empty if it can be written.
        elsewhere: a text that names other pools that own pods selected by this pool; empty if there are none.
    """
    if not_written and not (acknowledged and all(acknowledged)):
        message = f"the pool's config can't be written, retrying: {not_written}"
        return Condition(Type.PROGRAMMED, "False", Reason.CONFIG_NOT_WRITTEN, message)
    if not observations and elsewhere:
        return Condition(Type.PROGRAMMED, "False", Reason.ENGINES_OF_ANOTHER_POOL, elsewhere)
    if not observations:
        return Condition(Type.PROGRAMMED, "False", Reason.NO_ENGINES, nothing_waits)
    total = f"{len(observations)} engine{'s' if len(observations) > 1 else ''}"
    for observation in observations:
        if observation.nack:
            untrusted = observation.is_untrusted
            what, reason = ("a", Reason.CONFIG_UNTRUSTED) if untrusted else ("the newest", Reason.CONFIG_REJECTED)
            kept = "keeps the previous config" if observation.has_config else "has no config"
            message = f"{observation.pod} refuses {what} config and {kept}: {observation.nack}"
            return Condition(Type.PROGRAMMED, "False", reason, message)
    for observation in observations:
        if observation.lag:
            message = f"{observation.pod}: {observation.lag}; restart the pod if this persists"
            return Condition(Type.PROGRAMMED, "False", Reason.API_SERVER_DIFFERS, message)
    for observation in observations:
        if observation.report is None:
            message = f"{observation.pod} does not answer: {observation.error}"
            return Condition(Type.PROGRAMMED, "Unknown", Reason.ENGINE_UNREACHABLE, message)
    if all(acknowledged):
        return Condition(Type.PROGRAMMED, "True", Reason.ACKNOWLEDGED, f"acknowledged by {total}")
    waiting = next(observation.pod for observation, done in zip(observations, acknowledged, strict=True) if not done)
    message = f"acknowledged by {sum(acknowledged)} of {total}; waiting for {waiting}"
    return Condition(Type.PROGRAMMED, "Unknown", Reason.PENDING, message)
