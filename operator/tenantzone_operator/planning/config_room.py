"""Decides whether a pool's config fits into its ConfigMap, and which changes must wait if not; pure.

The compressed size of a config can only be found by trying. If a config is too large, smaller sets of changes are
tried, up to the largest that fits: changed zones come before new ones, and older ones first. What is in force always
stays.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenantzone_contract.config import MAX_GENERATION, ConfigError, PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.packing import MAX_CONFIG_MAP_BYTES, pack_config

NEW_ZONES_BYTES = 900_000
"""How far new zones may fill a pool's ConfigMap, in bytes; the rest is for changes."""

CHANGES_BYTES = MAX_CONFIG_MAP_BYTES - 4096
"""How far any change may fill it, in bytes. Another hash compresses to a slightly different size."""

_REMEMBERED = 4
_ANY_HASH = "sha256:" + 64 * "0"


@dataclass(frozen=True, slots=True)
class Choice:
    """The pool's config that fits, and the zones whose changes are left out."""

    pool: PoolConfig | None
    """The part that all zones share, new or in force; None if it does not fit and none is in force."""
    left_out: frozenset[str] = frozenset()
    """The zones that keep their entry in force, or stay out of the config if they are new."""


class ConfigRoom:
    """Chooses the changes that fit, and caches its last answers: at the limit the same changes recur."""

    def __init__(self) -> None:
        self._answers: list[tuple[tuple[PoolConfig, Sequence[ZoneConfig], RuntimeConfig | None], Choice]] = []

    def choose(self, pool: PoolConfig, entries: Sequence[ZoneConfig], in_force: RuntimeConfig | None) -> Choice:
        """Choose as many changes as fit into the ConfigMap.

        Args:
            pool: the part that all zones should share.
            entries: the zones' new entries, in the order in which they get room.
            in_force: the snapshot that the engines have.
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
    # A zone that names another tenant counts as new: its former tenant may belong to another zone by now.
    held = {entry.name: known[entry.name] for entry in entries if _is_known(entry, known)}
    if not _fits(pool, tuple(held.values()), CHANGES_BYTES):
        if in_force is None:
            return Choice(None)
        pool = in_force.pool
    changed = [entry for entry in entries if entry.name in held and entry != held[entry.name]]
    # Entries that do not grow never wait for entries that do.
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
    """Returns the highest number up to ``number`` that fits."""
    return bisect_left(range(1, number + 1), True, key=lambda tried: not fits(tried))


def _fits(pool: PoolConfig, entries: Sequence[ZoneConfig], max_bytes: int) -> bool:
    config = RuntimeConfig.model_construct(generation=MAX_GENERATION, hash=_ANY_HASH, pool=pool, zones=tuple(entries))
    try:
        return pack_config(config).most_size <= max_bytes
    except ConfigError:
        return False
