"""Which new chunks a zone may store in a tier, by the zone's admission policy.

A chunk's key identifies its whole prefix, so a prefix was seen before if the key of its last chunk was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tenantzone_contract.reports.tier_effect import TierEffect, TierWindow
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.tiers import Admission, TierName
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts

REMEMBERED_PREFIXES: Final = 32_768
"""Maximum number of prefixes remembered for one zone in one tier, which take about 2.5 MB.

At least the most recent half of that number is remembered.
"""


class SeenPrefixes:
    """The most recently seen prefixes of one zone, in a set of bounded size.

    The older of two halves is dropped when the newer one is full.
    """

    def __init__(self, capacity: int = REMEMBERED_PREFIXES) -> None:
        self._half = capacity // 2
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def has(self, key: bytes) -> bool:
        """Whether a prefix was seen."""
        return hash(key) in self._newer or hash(key) in self._older

    def note(self, keys: Iterable[bytes]) -> None:
        """Note that these prefixes were seen now."""
        for key in keys:
            if len(self._newer) >= self._half:
                self._newer, self._older = set(), self._newer
            self._newer.add(hash(key))


class TierAdmission:
    """The admission policies of one tier's zones, and their state.

    Args:
        tier: name of the tier.
        counts_of: returns the counts of a zone.
        is_present: whether a zone still exists.
    """

    def __init__(
        self, tier: TierName, counts_of: Callable[[Zone], TierCounts], is_present: Callable[[Zone], bool]
    ) -> None:
        self._tier = tier
        self._counts_of = counts_of
        self._is_present = is_present
        self._terms: Mapping[str, Admission] = {}
        """Admission policies by tenant. Tenants with the policy ``Always`` are left out."""
        self._seen: dict[Zone, tuple[int, SeenPrefixes]] = {}
        """By zone, how many of its purges had begun, and the prefixes seen since. A further purge clears these."""
        self._effects: dict[Zone, TierEffect] = {}

    def follow(self, config: RuntimeConfig) -> None:
        """Use the policies of a config from now on."""
        self._terms = {
            zone.tenant: share.admission
            for zone in config.zones
            for share in zone.tiers
            if share.tier == self._tier and share.admission != "Always"
        }

    def forget(self, zone: Zone) -> None:
        """Forget a zone that is gone."""
        self._seen.pop(zone, None)
        self._effects.pop(zone, None)

    def is_selective(self, zone: Zone) -> bool:
        """Whether a zone's policy depends on the prefixes that were seen before."""
        return zone.spec.tenant in self._terms

    def admitted(self, zone: Zone, keys: Sequence[bytes], now: float, *, is_cut: bool = False) -> int:
        """Returns how many of a request's new chunks its zone may store, and notes all their prefixes as seen.

        Args:
            zone: zone of the request.
            keys: keys of the new chunks, in the order of the prompt. A chunk is only useful with all chunks before it.
            now: current time in seconds.
            is_cut: whether a chunk before the new ones was not admitted.
        """
        if not self.is_selective(zone):
            return len(keys)
        seen, admitted = self._seen_of(zone), len(keys)
        if not self._is_open(zone, now):
            unseen = (place for place, key in enumerate(keys) if is_cut or not seen.has(key))
            admitted = next(unseen, len(keys))
        seen.note(keys)
        self.count_not_admitted(zone, len(keys) - admitted)
        return admitted

    def admits_any(self, zone: Zone, keys: Sequence[bytes], now: float) -> bool:
        """Whether the zone may store a prompt that is only useful as a whole.

        Args:
            zone: zone of the request.
            keys: the key of the last chunk of each hit that the prompt makes possible. All are noted as seen.
            now: current time in seconds.
        """
        if not self.is_selective(zone):
            return True
        seen = self._seen_of(zone)
        is_admitted = self._is_open(zone, now) or any(map(seen.has, keys))
        seen.note(keys)
        return is_admitted

    def count_not_admitted(self, zone: Zone, chunks: int) -> None:
        """Count chunks that were not admitted. :meth:`admits_any` does not do this, so its caller must."""
        if chunks:
            self._counts_of(zone).not_admitted += chunks

    def used(self, zone: Zone, now: float) -> None:
        """Update the zone's statistics of offered and loaded chunks; called after each store and each load."""
        if not self._is_present(zone):
            return
        counts = self._counts_of(zone)
        effect = self._effects.get(zone)
        if effect is None:
            effect = self._effects[zone] = TierEffect(now)
        effect.count(counts.written + counts.not_admitted, counts.hits, now)

    def window(self, zone: Zone, now: float) -> TierWindow | None:
        """Returns the zone's use of the tier in the last evaluated window, or None if no window is valid."""
        effect = self._effects.get(zone)
        return None if effect is None else effect.last(now)

    def is_ineffective(self, zone: Zone, now: float) -> bool:
        """Whether the zone loads too few of the chunks that it offers to the tier."""
        effect = self._effects.get(zone)
        return effect is not None and effect.is_ineffective(now)

    def check(self, zones: Iterable[Zone]) -> None:
        """Check that no state is kept for removed zones.

        Raises:
            AssertionError: there is state of a removed zone.
        """
        present = set(zones)
        assert self._seen.keys() <= present
        assert self._effects.keys() <= present

    def _is_open(self, zone: Zone, now: float) -> bool:
        """Whether the zone may store chunks that were never seen before."""
        return self._terms[zone.spec.tenant] == "Auto" and not self.is_ineffective(zone, now)

    def _seen_of(self, zone: Zone) -> SeenPrefixes:
        purges, seen = self._seen.get(zone, (zone.purges, None))
        if seen is None or purges != zone.purges:
            seen = SeenPrefixes()
            # The state of a removed zone would never be used.
            if self._is_present(zone):
                self._seen[zone] = zone.purges, seen
        return seen
