"""Gives the admin port's threads access to an engine's migration."""

from threading import RLock
from typing import Any

from tenantzone_contract.cache.migration import MAX_BLOCKS, MigrationOrder, MigrationReport
from tenantzone_runtime.shared.prompts import Prompts, WholePrompts, within
from tenantzone_runtime.zones.tenancy import Tenancy


class ServedZoneMigration:
    """Takes migration orders, and reports their progress.

    Args:
        lock: the lock of the engine's zones.
        migration: the engine's migration.
        tenancy: the engine's zones, whose step times show how fast prompts are computed.
    """

    def __init__(self, lock: RLock, migration: Any, tenancy: Tenancy) -> None:
        # Not typed here, because its module is imported only with the connector.
        self._lock, self._migration, self._tenancy = lock, migration, tenancy

    def do(self, order: MigrationOrder) -> None:
        """Begin or stop a migration.

        Raises:
            MigrationError: the order can't be carried out now, for the reason in the message.
        """
        if order.order == "stop":
            with self._lock:
                self._migration.stop(order.tenant, "stopped on request")
            return
        prompts: Prompts = order.prompts if order.order == "warm-up" else self._prompts(order.tenant)
        with self._lock:
            self._migration.begin(order, prompts)

    def report(self, tenant: str, *, with_prompts: bool) -> MigrationReport:
        """Returns the progress of the last migration of a tenant's zone."""
        prompts = tuple(within(self._prompts(tenant), MAX_BLOCKS)) if with_prompts else ()
        with self._lock:
            size, tokens = self._migration.chunk_bytes, self._migration.chunk_tokens
            report = self._migration.report(tenant)
            rate = self._tenancy.step_times.prompt_tokens_per_second
        return MigrationReport(
            tenant=tenant,
            chunk_bytes=size,
            chunk_tokens=tokens,
            moved_bytes=report.get("moved", 0) * size,
            prompt_tokens_per_second=rate,
            prompts=tuple(map(tuple, prompts)),
            **report,
        )

    def _prompts(self, tenant: str) -> WholePrompts:
        with self._lock:
            links = self._migration.recent.links(tenant)
        return WholePrompts(links)
