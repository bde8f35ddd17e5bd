"""Decides whether a pool's config fits into its ConfigMap, and which changes must wait if it does not fit.

The compressed size of a config can only be determined by compressing it. If a config is too large, a search finds the
largest set of changes that fits. In this set, changed zones come before new zones, and older zones before younger
zones. Entries of the current snapshot always stay.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenantzone_contract.zone_config.config import MAX_GENERATION, ConfigError, PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.packing import MAX_CONFIG_MAP_BYTES, pack_config

NEW_ZONES_BYTES = 900_000
"""Maximum size in bytes to which new zones may fill a pool's ConfigMap. The rest is reserved for changes of zones."""

CHANGES_BYTES = MAX_CONFIG_MAP_BYTES - 4096
"""Maximum size in bytes after any change. The margin is needed because another hash may compress less well."""

_REMEMBERED = 4
_ANY_HASH = "sha256:" + 64 * "0"


@dataclass(frozen=True, slots=True)
class Choice:
    """The pool settings that fit into the ConfigMap, and the zones whose changes do not fit."""

    pool: PoolConfig | None
    """The pool's new settings, or the current settings if the new ones do not fit; None if neither is possible."""
    left_out: frozenset[str] = frozenset()
    """Names of zones whose changes do not fit. They keep their current entry, or have no entry if they are new."""


class ConfigRoom:
    """Chooses the changes that fit, and caches recent results, because each reconcile asks the same question again."""

    def __init__(self) -> None:
        self._answers: list[tuple[tuple[PoolConfig, Sequence[ZoneConfig], RuntimeConfig | None], Choice]] = []

    def choose(self, pool: PoolConfig, entries: Sequence[ZoneConfig], in_force: RuntimeConfig | None) -> Choice:
        """Choose as many changes as fit into the ConfigMap.

        Args:
            pool: the pool's new settings.
            entries: the zones' new entries, in the order in which they are added.
            in_force: the current snapshot.
        """
        asked = pool, entries, in_force
        for before, choice in self._answers:
            if asked == before:
                return choice
        choice = _choose(pool, entries, in_force)
        self._answers = [*self._answers[1 - _REMEMBERED :], (asked, choice)]
        return choice


def _choose(pool: PoolConfig, entries: Sequence[ZoneConfig], in_force: RuntimeConfig | None) -> Choice:
    if _fits(pool, entries, NEW_ZONES_BYTES):
        return Choice(pool)
    known = {entry.name: entry for entry in in_force.zones} if in_force is not None else {}
    # A zone with a different tenant counts as new, because its former tenant may now belong to another zone.
    held = {entry.name: known[entry.name] for entry in entries if _is_known(entry, known)}
    if not _fits(pool, tuple(held.values()), CHANGES_BYTES):
        if in_force is None:
            return Choice(None)
        pool = in_force.pool
    changed = [entry for entry in entries if entry.name in held and entry != held[entry.name]]
    # Put entries that do not grow first, so that they are chosen even if growing entries do not fit.
    changed.sort(key=lambda entry: len(entry.text) > len(held[entry.name].text))
    new = [entry for entry in entries if entry.name not in held]

    def with_changes(number: int) -> tuple[ZoneConfig, ...]:
        return tuple({**held, **{entry.name: entry for entry in changed[:number]}}.values())

    changes = _most(len(changed), lambda number: _fits(pool, with_changes(number), CHANGES_BYTES))
    base = with_changes(changes)
    added = _most(len(new), lambda number: _fits(pool, (*base, *new[:number]), NEW_ZONES_BYTES))
    return Choice(pool, frozenset(entry.name for entry in (*changed[changes:], *new[added:])))


def _is_known(entry: ZoneConfig, known: Mapping[str, ZoneConfig]) -> bool:
    return entry.name in known and known[entry.name].tenant == entry.tenant


def _most(number: int, fits: Callable[[int], bool]) -> int:
    """Returns the highest number from 0 to ``number`` that fits, if all lower numbers fit, too."""
    return bisect_left(range(1, number + 1), True, key=lambda tried: not fits(tried))


def _fits(pool: PoolConfig, entries: Sequence[ZoneConfig], max_bytes: int) -> bool:
    config = RuntimeConfig.model_construct(generation=MAX_GENERATION, hash=_ANY_HASH, pool=pool, zones=tuple(entries))
    try:
        return pack_config(config).most_size <= max_bytes
    except ConfigError:
        return False
