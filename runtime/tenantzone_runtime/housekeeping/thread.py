"""The housekeeping thread, which applies new configs, applies timeouts to idle zones, and publishes the report.

It does this work periodically. Steps can't do it, because an engine's loop sleeps while there are no requests, and
because steps must not wait for files or for HTTP. The thread changes zones only under the engine's ``zone_lock``, which
is free between two steps.
"""

import logging
import threading
import time
from uuid import uuid4

from msgspec.structs import replace

from tenantzone_contract.reports.report import ConfigStatus, EngineReport, IdentityReport
from tenantzone_contract.zone_config.identity import IdentityConfig, identity_digest
from tenantzone_runtime.admin_port.admin_access import AdminAccess, AdminTokens
from tenantzone_runtime.frontend.identities.choice import make_identity
from tenantzone_runtime.frontend.identities.key_ring import KeyRing
from tenantzone_runtime.housekeeping.api_servers import ApiServers, Enforced
from tenantzone_runtime.housekeeping.applied import AppliedConfig
from tenantzone_runtime.housekeeping.auditing import Auditing, open_journal
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.housekeeping.reloading import Reloading
from tenantzone_runtime.housekeeping.report.reporting import make_figures, make_report
from tenantzone_runtime.housekeeping.salting import Salting
from tenantzone_runtime.metrics.figures import EngineFigures
from tenantzone_runtime.settings import Settings


class Identifying:
    """Reads the sources of the identity in force."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.identity_dir
        self._keys = KeyRing(settings.keys_dir, settings.seal_key)
        self._declared: IdentityConfig | None = None
        self._identity = make_identity(None, self._keys, self._folder)

    def read_on(self) -> None:
        """Read the next part of the key files, if some of them have not been read yet."""
        if self._keys.is_partly_read:
            self._keys.refresh()

    @property
    def keys_digest(self) -> str:
        """Digest of the API keys at the last read."""
        return self._keys.digest

    def look(self, declared: IdentityConfig | None) -> IdentityReport:
        """Returns the current report of an identity.

        Args:
            declared: the identity in the config in force.
        """
        if declared != self._declared:
            self._declared = declared
            self._identity = make_identity(declared, self._keys, self._folder)
        if declared is None or declared.api_keys is not None:
            self._keys.refresh()
        self._identity.refresh()
        kind = declared.kind if declared is not None else "APIKeys"
        return IdentityReport(
            kind=kind, digest=identity_digest(declared), problem=self._identity.problem, keys=self._keys.digest
        )


logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.1
REPORT_SECONDS = 1.0
SCRAPE_SECONDS = 1.0
"""Timeout in seconds for a scrape to wait for the next turn's snapshot. After it, the previous snapshot is returned."""


class Housekeeping:
    """Keeps an engine's zones in line with the config folder, and publishes a report of them.

    Args:
        engine: the engine of the zones.
        settings: the settings with the folders of config, salt key, admin tokens, journal and frontend, and the name of
            the engine's pod.
    """

    def __init__(self, engine: ServedEngine, settings: Settings) -> None:
        self._engine = engine
        self._pod, self._pod_uid, self._boot_id = settings.pod_name, settings.pod_uid, uuid4().hex
        self._started_unix_time = time.time()
        self._auditing = Auditing(engine, open_journal(engine, settings, self._started_unix_time))
        self.admin_access = AdminAccess(None if settings.admin_open else settings.admin_token_dir)
        """Decides which clients may read the report. Updated in each turn."""
        signed_with = None
        if settings.signed_config:
            signed_with = (self.admin_access.tokens or AdminTokens(settings.admin_token_dir)).read
        self._reloading = Reloading(engine, settings.config_dir, self._auditing.config_refused, signed_with)
        self._applied = AppliedConfig(settings.state_dir)
        self._salting = Salting(engine, settings)
        self._identifying = Identifying(settings)
        self._api_servers = ApiServers(settings.state_dir, engine.api_servers)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tenantzone-housekeeping", daemon=True)
        self._is_asked_for = True
        self._published = time.monotonic()
        self._scraped = threading.Condition()
        self._is_scraped = True
        # Apply the first config before the first request can arrive, so that its zone exists.
        self.turn()

    @property
    def report(self) -> EngineReport:
        """Newest report, immutable so that any thread may read it. Reading it triggers another in the next turn."""
        self._is_asked_for = True
        return self._report

    def figures(self) -> EngineFigures:
        """Returns new figures for a scrape, or the last figures if the thread is not running. Thread-safe."""
        with self._scraped:
            before = self._figures
            self._is_scraped = True
            self._scraped.wait_for(lambda: self._figures is not before, SCRAPE_SECONDS)
            return self._figures

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its turn, and close the journal."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._auditing.close()

    def turn(self) -> None:
        """Do the work of one turn: look for a new config, apply timeouts, publish a report."""
        has_news = self._reloading.turn()
        rejection = self._applied.rejection
        self._applied.show(self._reloading.in_force)
        has_news |= self._applied.rejection is not rejection
        has_news |= self._salting.turn()
        has_news |= self._look_at_api_servers()
        self.admin_access.poll()
        self._engine.let_time_pass()
        self._auditing.turn()
        # A report of a thousand zones takes milliseconds, so don't make ten per second if no client reads them.
        if has_news or self._is_asked_for or time.monotonic() - self._published >= REPORT_SECONDS:
            self._publish()
        if self._is_scraped:
            self._take_figures()

    def _take_figures(self) -> None:
        # Clear the flag before making the figures, because a scrape that arrives meanwhile needs later figures.
        self._is_scraped = False
        figures = make_figures(
            self._engine,
            self._status(),
            self._reloading.reloads,
            pod=self._pod,
            started_unix_time=self._started_unix_time,
            refused_at_admin_port=self.admin_access.refused,
        )
        with self._scraped:
            self._figures = figures
            self._scraped.notify_all()

    def _publish(self) -> None:
        self._is_asked_for = False
        self._published = time.monotonic()
        in_force = self._reloading.in_force
        self._report = make_report(
            self._engine,
            self._status(),
            pod=self._pod,
            pod_uid=self._pod_uid,
            boot_id=self._boot_id,
            started_unix_time=self._started_unix_time,
            salt_key=self._salting.status,
            identity=self._identifying.look(in_force.pool.identity if in_force is not None else None),
            api_servers=self._api_servers.reports,
            missing_api_servers=self._api_servers.missing,
            admin_port=self.admin_access.status,
        )

    def _look_at_api_servers(self) -> bool:
        self._identifying.read_on()
        in_force = self._reloading.in_force
        config_hash = in_force.hash if in_force is not None else None
        return self._api_servers.turn(Enforced(config_hash, self._identifying.keys_digest, self._salting.status.id))

    def _status(self) -> ConfigStatus:
        """Returns the status of the newest config, in the engine and in the API server."""
        status = self._reloading.status
        if status.rejected is not None:
            return status
        return replace(status, rejected=self._applied.rejection)

    def _run(self) -> None:
        reported = ""
        while not self._stopping.wait(INTERVAL_SECONDS):
            try:
                self.turn()
                reported = ""
            except Exception as error:
                # The engine must continue to serve. The report becomes stale, which the health check detects.
                if repr(error) != reported:
                    logger.exception("housekeeping failed, retrying; the zones stay unchanged")
                reported = repr(error)
