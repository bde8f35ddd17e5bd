"""The manager's metrics. The number of registered objects bounds the number of label values."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from tenantzone_manager.core.moving import Moved
from tenantzone_manager.core.quota import Account
from tenantzone_manager.core.reclaiming import Reclaimed
from tenantzone_manager.core.settings import Storage

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

# Omit the creation time of each counter and histogram, because Prometheus detects restarts without these gauges.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Family(NamedTuple):
    """The description of a metric for the generated page of metrics."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class Metrics:
    """The metrics of one manager."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.families: list[Family] = []
        ProcessCollector(registry=self.registry)
        self.requests = self._counter(
            "requests", "Requests by call and how they ended: ok, or the code of the error.", "call", "code"
        )
        self.request_seconds = self._histogram("request_seconds", "Time from a request to its answer.", "call")
        self.queried = self._counter("queried_blocks", "Blocks that queries have asked for.", "group")
        self.matched = self._counter("matched_blocks", "... and that they were given a location of.", "group")
        self.writes = self._counter(
            "write_blocks",
            "Blocks that StartWriteCache was asked for: to be written (write), there already (serving), being written "
            "(writing), without the blocks before them (no_prefix), refused for want of room (no_room).",
            "group",
            "standing",
        )
        self.finished = self._counter(
            "finished_blocks",
            "Blocks of FinishWriteCache: serving, failed, or expired before it came.",
            "group",
            "ending",
        )
        self.evicted = self._counter("evicted_blocks", "Blocks that the reclaimer evicted, from a storage type each.")
        self.evicted_bytes = self._counter("evicted_bytes", "... and their bytes.")
        self.expired = self._counter("expired_writes", "Locations whose writer was taken for dead.")
        self.deleted = self._counter("deleted_locations", "Locations whose bytes were deleted.")
        self.undeleted = self._counter(
            "failed_deletions", "Locations that a storage did not delete; they are tried again."
        )
        self.orphans = self._counter("orphans", "Objects without a record that were removed.")
        self.moved_blocks = self._counter(
            "moved_blocks",
            "Blocks that got a location in a higher storage type, being read often (up), or gave theirs up for one in "
            "a lower type (down).",
            "direction",
        )
        self.moved_bytes = self._counter("moved_bytes", "Bytes that were copied to move blocks.", "direction")
        self.failed_moves = self._counter(
            "failed_moves",
            "Blocks that were to be moved and were not copied: one storage did not give them (read), the other did not "
            "take them (write) or has another size of them (size), the lease of the read was over (late), or they were "
            "removed meanwhile (gone).",
            "reason",
        )
        self.dropped_events = self._counter(
            "dropped_events", "Events that were not written, as they came faster than the disk took them."
        )
        self.reclaim_seconds = self._histogram("reclaim_seconds", "Time of one pass of the reclaimer.")
        self.cache_lookups = self._gauge(
            "search_cache_lookups", "Lookups into the search cache since the start, found or not.", "result"
        )
        self.cached = self._gauge("search_cache_records", "Records in the search cache.")
        self.conflicts = self._gauge(
            "index_conflicts", "Changes that were made anew since the start, as others had changed the same."
        )
        self.corrupt = self._gauge(
            "index_corrupt_records", "Records since the start that were dropped, as they are not what was written."
        )
        self.answered = self._gauge("index_available", "1 if the index answers.")
        self.has_room = self._gauge(
            "index_has_room", "1 if the index takes new blocks; 0: /readyz and the log say what it has no room on."
        )
        self.leads = self._gauge("leader", "1 if this manager reclaims.")
        self.used = self._gauge("used_bytes", "Bytes that a group uses, in all states.", "group", "type")
        self.deleting = self._gauge(
            "deleting_bytes", "... and those of them that are on their way out.", "group", "type"
        )
        self.limits = self._gauge(
            "limit_bytes", "Bytes that a group may use; absent: without a limit.", "group", "type"
        )
        self.healthy = self._gauge("storage_available", "1 if a storage is enabled and healthy.", "storage", "type")
        self.enabled = self._gauge(
            "storage_enabled", "1 if a storage is to be used; 0 if it is disabled.", "storage", "type"
        )

    def reclaimed(self, done: Reclaimed, seconds: float) -> None:
        """Count what a pass of the reclaimer did."""
        self.evicted.inc(done.evicted.blocks)
        self.evicted_bytes.inc(done.evicted.bytes)
        self.expired.inc(done.expired)
        self.deleted.inc(done.deleted)
        self.undeleted.inc(done.failed)
        self.reclaim_seconds.observe(seconds)

    def moved(self, done: Moved) -> None:
        """Count what a pass of the mover did."""
        for direction, blocks in done.blocks.items():
            self.moved_blocks.labels(direction).inc(blocks)
        for direction, size in done.bytes.items():
            self.moved_bytes.labels(direction).inc(size)
        for reason, blocks in done.failed.items():
            self.failed_moves.labels(reason).inc(blocks)

    def show_accounts(self, accounts: Mapping[tuple[str, str], Account]) -> None:
        """Set the byte gauges from the accounts of groups, and remove the gauges of all other accounts.

        Args:
            accounts: accounts by group and storage type. An empty type stands for all types together.
        """
        for gauge in (self.used, self.deleting, self.limits):
            gauge.clear()
        for labels, account in accounts.items():
            self.used.labels(*labels).set(account.used)
            self.deleting.labels(*labels).set(account.deleting)
            if account.limit >= 0:
                self.limits.labels(*labels).set(account.limit)

    def show_storages(self, storages: Iterable[tuple[Storage, bool]]) -> None:
        """Set storages' gauges from pairs (storage, is available), and remove the gauges of all other storages."""
        for gauge in (self.healthy, self.enabled):
            gauge.clear()
        for storage, available in storages:
            self.healthy.labels(storage.name, storage.type).set(available)
            self.enabled.labels(storage.name, storage.type).set(storage.enabled)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self.families.append(Family(f"tenantzone_manager_{name}_total", "counter", labels, text))
        return Counter(f"tenantzone_manager_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self.families.append(Family(f"tenantzone_manager_{name}", "gauge", labels, text))
        return Gauge(f"tenantzone_manager_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        self.families.append(Family(f"tenantzone_manager_{name}", "histogram", labels, text))
        return Histogram(f"tenantzone_manager_{name}", text, labels, registry=self.registry, buckets=_SECONDS)
