"""Periodically collects the zones' events and usage, and passes them to the journal."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from tenantzone_contract.zone_config.tiers import SHARED_TIER, AnyTierName
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.settings import Settings
from tenantzone_runtime.zones.audit.events import ConfigRefused, Event, TierReceipt
from tenantzone_runtime.zones.tiers import tier_trail

if TYPE_CHECKING:
    from tenantzone_runtime.journal.writer import JournalWriter

COLLECT_SECONDS = 1.0
USAGE_SECONDS = 60.0
CLOSE_SECONDS = 5.0
"""Seconds for which a stopping engine waits for room in the journal's queue. The journal writer has another timeout."""


def open_journal(engine: ServedEngine, settings: Settings, started_unix_time: float) -> "JournalWriter | None":
    """Open the journal. Returns None if the settings have no journal folder."""
    if settings.journal_dir is None:
        return None
    # Import here, so that an engine without a journal does not load the package.
    from tenantzone_runtime.journal.record import EngineRun
    from tenantzone_runtime.journal.writer import JournalWriter

    run = EngineRun(
        pod=settings.pod_name,
        started_unix_time=started_unix_time,
        version=engine.engine_version,
        capacity_blocks=len(engine.block_ids),
        block_size_tokens=engine.block_size_tokens,
    )
    return JournalWriter(
        settings.journal_dir, engine=run, max_bytes=settings.journal_max_bytes, keep=settings.journal_keep
    )


class Auditing:
    """Collects events for the journal once a second, and each zone's usage once a minute.

    Each turn collects at most one batch of limited size, so that no step waits long for the engine's lock. The next
    batch is collected only after the journal has taken the whole previous batch. If the disk is slow, the zone core
    aggregates its events meanwhile, so that no event is lost.

    Args:
        engine: the engine of the zones.
        journal: the journal; None to discard events. Events are also collected without a journal, so that they do not
            accumulate.
    """

    def __init__(self, engine: ServedEngine, journal: "JournalWriter | None") -> None:
        self._engine = engine
        self._tenancy = engine.tenancy
        self._journal = journal
        self._collected = self._told_usage = self._taken = time.monotonic()
        self._helping: Iterator[Event] = iter(())
        """Collected events that the journal has not taken yet."""
        self._usage: Iterator[Iterable[Event]] = iter(())
        """Parts of the last minute's usage that are not collected yet."""

    def turn(self) -> None:
        """Pass collected events to the journal. If none are left, collect new events if their time has come."""
        if self._journal is None:
            self._forget()
        elif self._hand_over(self._journal) and self._take():
            self._hand_over(self._journal)

    def config_refused(self, generation: int | None, error: str) -> None:
        """Record an event for a config that the engine refused."""
        with self._engine.zone_lock:
            self._tenancy.ledger.trail.note(ConfigRefused(generation, error))

    def close(self) -> None:
        """Pass the remaining events and the last usage to the journal, and close it. Called when the engine stops."""
        if self._journal is None:
            return
        with self._engine.zone_lock:
            last = chain(self._take_all(), *self._usage_in_slices())
        self._journal.write(chain(self._helping, last), time.monotonic(), patience_seconds=CLOSE_SECONDS)
        self._journal.close()

    def _forget(self) -> None:
        if time.monotonic() - self._collected >= COLLECT_SECONDS:
            self._take_notes()

    def _hand_over(self, journal: "JournalWriter") -> bool:
        """Pass as many events to the journal as it has room for. Returns True if no collected events are left."""
        room = journal.room
        events = list(islice(self._helping, room))
        journal.write(events, self._taken)
        return len(events) < room

    def _take(self) -> bool:
        """Collect events or a part of the usage, if their time has come. Returns whether anything was collected."""
        self._taken = time.monotonic()
        if self._taken - self._collected >= COLLECT_SECONDS:
            self._helping = self._take_notes()
            return True
        with self._engine.zone_lock:
            events = next(self._usage, None)
        if events is None and self._taken - self._told_usage >= USAGE_SECONDS:
            self._told_usage = self._taken
            self._usage = self._usage_in_slices()
        self._helping = iter(events or ())
        return events is not None

    def _take_notes(self) -> Iterator[Event]:
        self._collected = time.monotonic()
        with self._engine.zone_lock:
            return self._take_all()

    def _take_all(self) -> Iterator[Event]:
        """Collect all events. The caller must hold the lock. The returned iterator may be used without the lock."""
        notes = self._tenancy.ledger.trail.take()
        in_tiers = [tier_trail.take_events(served.tier) for served in self._engine.tiers]
        receipts: list[tuple[AnyTierName, Sequence[Receipt]]] = [
            *((served.tier.name, served.take_receipts()) for served in self._engine.tiers),
            *((SHARED_TIER, served.take_receipts()) for served in self._engine.shared_tiers),
        ]
        return chain(
            notes.events(),
            *in_tiers,
            (
                TierReceipt(receipt.tenant, name, receipt.purge or None, receipt.chunks, receipt.files)
                for name, some in receipts
                for receipt in some
            ),
        )

    def _usage_in_slices(self) -> Iterator[Iterable[Event]]:
        """Returns each zone's usage, in parts. The caller must hold the lock while it gets a part from the iterator."""
        in_tiers = (tier_trail.usage_in_slices(served.tier) for served in self._engine.tiers)
        return chain(self._tenancy.usage_in_slices(), *in_tiers)
