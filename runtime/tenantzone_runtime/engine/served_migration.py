"""A migration as the admin port sees it, from threads of its own."""

from threading import RLock
from typing import Any

from tenantzone_contract.migration import MAX_BLOCKS, MigrationOrder, MigrationReport
from tenantzone_runtime.shared.prompts import Prompts, WholePrompts, within
from tenantzone_runtime.zones.tenancy import Tenancy


class ServedZoneMigration:
    """Takes orders, and tells how far they have come.

    Args:
        lock: of the engine's zones.
        migration: the engine's.
        tenancy: whose steps say how fast prompts are computed.
    """

    def __init__(self, lock: RLock, migration: Any, tenancy: Tenancy) -> None:
        # Typed where it is made: its module is imported with the connector only.
        self._lock, self._migration, self._tenancy = lock, migration, tenancy

    def do(self, order: MigrationOrder) -> None:
        """Begin what is asked for, or stop it.

        Raises:
            MigrationError: it can't be done now; the message says why.
        """
        if order.order == "stop":
            with self._lock:
                self._migration.stop(order.tenant, "somebody has asked for that")
            return
        prompts: Prompts = order.prompts if order.order == "warm-up" else self._prompts(order.tenant)
        with self._lock:
            self._migration.begin(order, prompts)

    def report(self, tenant: str, *, with_prompts: bool) -> MigrationReport:
        """How far what was asked for a tenant's zone has come."""
        prompts = tuple(within(self._prompts(tenant), MAX_BLOCKS)) if with_prompts else ()
        with self._lock:
            size, tokens = self._migration.chunk_bytes, self._migration.chunk_tokens
            told = self._migration.told(tenant)
            rate = self._tenancy.step_times.prompt_tokens_per_second
        return MigrationReport(
            tenant=tenant,
            chunk_bytes=size,
            chunk_tokens=tokens,
            moved_bytes=told.get("moved", 0) * size,
            prompt_tokens_per_second=rate,
            prompts=tuple(map(tuple, prompts)),
            **told,
        )

    def _prompts(self, tenant: str) -> WholePrompts:
        with self._lock:
            links = self._migration.recent.links(tenant)
        return WholePrompts(links)
