"""Determines what the engines have acknowledged, from their reports; pure."""

from collections.abc import Iterable, Mapping, Sequence

from tenantzone_contract.config import RuntimeConfig, ZoneConfig
from tenantzone_contract.fitting import grants, limit_blocks
from tenantzone_contract.share import floor_blocks
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.views import EngineView
from tenantzone_operator.kube.conditions import Condition, Reason, Type
from tenantzone_operator.planning.contradictions import limit_below_reserved

_REMEMBERED_SNAPSHOTS = 64


class History:
    """The published snapshots, and since which of them each zone's entry is unchanged.

    An engine with an older snapshot still enforces a zone if the zone has not changed since. So a change of one zone
    does not make all other zones of the pool look unacknowledged.
    """

    def __init__(self) -> None:
        self._newest: RuntimeConfig | None = None
        self._newest_bytes = 0
        self._entries: dict[str, ZoneConfig] = {}
        self._hashes: dict[int, str] = {}
        self._lacking: dict[int, dict[str, int]] = {}
        """The blocks of the newest snapshot's reservations that an engine lacks, by the engine's size, then by zone."""
        self._since: dict[str, int] = {}

    @property
    def newest(self) -> RuntimeConfig | None:
        return self._newest

    @property
    def newest_bytes(self) -> int:
        """The size of the newest snapshot in its ConfigMap, in bytes."""
        return self._newest_bytes

    def record(self, config: RuntimeConfig, size: int) -> None:
        """Note the newest config; harmless if it was noted already.

        Args:
            config: the published config.
            size: its size in the ConfigMap, in bytes.
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
        """Returns whether each process of the engine enforces the zone's entry as in the newest snapshot."""
        if report.lag or not _same(self._entries.get(entry.name), entry):
            return False
        return all(self._has_entry(*enforced, entry) for enforced in report.enforced)

    def _has_entry(self, generation: int | None, config_hash: str | None, entry: ZoneConfig) -> bool:
        """Returns whether the config of this generation and hash has the entry as in the newest snapshot."""
        if generation is None or config_hash is None:
            return False
        # Equal content under another generation counts as equal, for example after a lost ConfigMap was written again.
        if self._newest is not None and config_hash == self._newest.hash:
            return True
        return generation >= self._since[entry.name] and self._hashes.get(generation) == config_hash

    def acknowledged_by(self, seen: Observation, entry: ZoneConfig) -> bool:
        """Returns whether an engine acknowledges the zone's entry; False if it does not answer."""
        return seen.report is not None and self.acknowledges(seen.report, entry)

    def look_at_sizes(self, observations: Iterable[Observation]) -> None:
        """Remember only the observed engines' sizes: a pod may claim another size each time."""
        sizes = {seen.report.capacity_blocks for seen in observations if seen.report is not None}
        self._lacking = {size: lacking for size, lacking in self._lacking.items() if size in sizes}

    def lacking(self, seen: Observation) -> Mapping[str, int]:
        """Returns the blocks of reservations that an engine is too small for, by zone; empty if it does not answer."""
        if seen.report is None or self._newest is None:
            return {}
        size = seen.report.capacity_blocks
        if size not in self._lacking:
            held = zip(self._newest.zones, grants(self._newest.zones, size), strict=True)
            self._lacking[size] = {zone.name: grant.lacking for zone, grant in held if grant.lacking}
        return self._lacking[size]

    def lacks(self, seen: Observation, zone: str) -> int:
        """Returns the blocks of a zone's reservation that an engine is too small for; 0 if it fits."""
        return self.lacking(seen).get(zone, 0)

    def contradiction(self, seen: Observation, zone: str) -> str:
        """Returns how a zone's limit contradicts its reservation in an engine; empty if it does not, or if unknown.

        An engine with more or fewer blocks may be large enough for such a zone, but this one is not just too small for
        it.
        """
        entry = self._entries.get(zone)
        if entry is None or seen.report is None:
            return ""
        blocks = seen.report.capacity_blocks
        # An engine without room for the reservation is too small, whatever the limit is.
        return limit_below_reserved(entry, blocks) if floor_blocks(entry.reserved, blocks) <= blocks else ""

    def is_unfit(self, seen: Observation, zone: str) -> bool:
        """Returns whether an engine is too small for a zone's reservation, or refuses the config for being too small.

        Engines of the previous release refuse the config in that case. No status waits for such an engine.
        """
        lacking = self.lacking(seen)
        return zone in lacking or (bool(seen.nack) and not seen.is_untrusted and bool(lacking))

    def difference(self, seen: Observation, entry: ZoneConfig) -> str:
        """Returns how an engine's report of a zone differs from what its size requires; empty if it does not.

        A config's hash alone does not show what the engine made of the config.
        """
        assert seen.report is not None, "it has acknowledged the entry"
        zone, blocks = seen.zones.get(entry.name), seen.report.capacity_blocks
        if zone is None:
            return "does not report the zone"
        reserved = 0 if self.lacks(seen, entry.name) else floor_blocks(entry.reserved, blocks)
        limit = limit_blocks(entry.limit, blocks)
        if (zone.generation, zone.reserved, zone.limit) == (entry.generation, reserved, limit):
            return ""
        return (
            f"reports generation {zone.generation} of the zone with reserved {zone.reserved} and limit {zone.limit}, "
            f"not {entry.generation} with {reserved} and {limit}"
        )

    def acknowledges_newest(self, report: EngineView) -> bool:
        """Returns whether each process of the engine enforces the newest snapshot, with the same keys and salts."""
        if self._newest is None or report.lag:
            return False
        newest = self._newest.hash
        return all(config_hash == newest for _, config_hash in report.enforced)


def _same(known: ZoneConfig | None, entry: ZoneConfig) -> bool:
    # The objects are mostly identical, and comparing thousands field by field takes long.
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
        observations: one for each ready engine that can enforce it.
        acknowledged: for each of them, whether it has acknowledged.
        nothing_waits: the message if there is no engine.
        not_written: why the newest config can't be written; empty if it can.
        elsewhere: which other pools have the pods that the pool selects; empty if none.
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
