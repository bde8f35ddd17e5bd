"""Hands what the zones did to the journal, from time to time."""

import time

import vllm

from tenantzone_contract.settings import Settings
from tenantzone_runtime.engine.scheduling import ZoneAwareScheduler
from tenantzone_runtime.journal.record import EngineRun
from tenantzone_runtime.journal.writer import JournalWriter
from tenantzone_runtime.zones.audit import ConfigRefused

COLLECT_SECONDS = 1.0
USAGE_SECONDS = 60.0


def open_journal(scheduler: ZoneAwareScheduler, settings: Settings, started_unix_time: float) -> JournalWriter | None:
    """The journal that the settings ask for."""
    if settings.journal_dir is None:
        return None
    run = EngineRun(
        pod=settings.pod_name,
        started_unix_time=started_unix_time,
        version=vllm.__version__,
        capacity_blocks=scheduler.block_pool.capacity,
        block_size_tokens=scheduler.block_size,
    )
    return JournalWriter(
        settings.journal_dir, engine=run, max_bytes=settings.journal_max_bytes, keep=settings.journal_keep
    )


class Auditing:
    """Collects what happened once a second, and what each zone has used once a minute.

    Args:
        scheduler: whose zones.
        journal: where it goes; None: nowhere, but it must be collected all the same, or it would pile up.
    """

    def __init__(self, scheduler: ZoneAwareScheduler, journal: JournalWriter | None) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._collected = self._told_usage = time.monotonic()

    def turn(self) -> None:
        """Collect what is due."""
        now = time.monotonic()
        if now - self._collected >= COLLECT_SECONDS:
            with_usage = now - self._told_usage >= USAGE_SECONDS
            self._collect(now, with_usage=with_usage)

    def config_refused(self, generation: int | None, error: str) -> None:
        """A config was refused; the one before stays in force."""
        if self._journal is not None:
            self._journal.write([ConfigRefused(generation, error)], time.monotonic())

    def close(self) -> None:
        """The engine stops: collect what is left, with the last usage."""
        self._collect(time.monotonic(), with_usage=True)
        if self._journal is not None:
            self._journal.close()

    def _collect(self, now: float, *, with_usage: bool) -> None:
        self._collected = now
        if with_usage:
            self._told_usage = now
        events = self._scheduler.collect_audit(with_usage=with_usage)
        if self._journal is not None:
            self._journal.write(events, now)
