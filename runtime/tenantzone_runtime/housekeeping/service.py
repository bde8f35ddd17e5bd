"""Starts and stops housekeeping and the admin port of one engine."""

from tenantzone_contract.cache.migration import MigrationReport
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_migration import MigrationPage
from tenantzone_runtime.housekeeping.engine import ServedEngine, ServedMigration
from tenantzone_runtime.housekeeping.report.block_map import take_block_map, take_tier_map
from tenantzone_runtime.housekeeping.thread import Housekeeping
from tenantzone_runtime.settings import Settings


class Service:
    """Housekeeping of an engine, and the engine's admin port. The constructor applies the first config.

    Args:
        engine: the engine.
        settings: the process's settings.

    Raises:
        OSError: the admin port is in use.
    """

    def __init__(self, engine: ServedEngine, settings: Settings) -> None:
        engine.tenancy.ledger.overflow.max_apart = settings.max_auto_registered_series
        self._housekeeping = Housekeeping(engine, settings)
        self._admin = AdminServer(
            settings.admin_host,
            settings.admin_port,
            access=self._housekeeping.admin_access,
            read_report=lambda: self._housekeeping.report,
            read_figures=self._housekeeping.figures,
            take_block_map=lambda cells: take_block_map(engine, self._housekeeping.report, cells),
            take_tier_map=lambda tier, cells: take_tier_map(engine, self._housekeeping.report, tier, cells),
            migration=_migration_page(engine.migration, settings.pod_name),
            metrics_level=settings.metrics_level,
        )

    @property
    def admin_port(self) -> int:
        """The number of the admin port, also if the operating system has chosen it."""
        return self._admin.port

    def start(self) -> None:
        self._admin.start()
        self._housekeeping.start()

    def stop(self) -> None:
        """Close the admin port, wait for the housekeeping thread to end, and write the journal's last events."""
        self._admin.stop()
        self._housekeeping.stop()


def _migration_page(migration: ServedMigration | None, pod: str) -> MigrationPage | None:
    if migration is None:
        return None

    def report(tenant: str, with_prompts: bool) -> MigrationReport:
        return migration.report(tenant, with_prompts=with_prompts).model_copy(update={"pod": pod})

    return MigrationPage(migration.do, report)
