"""The housekeeping thread. It periodically applies new configs and timeouts, and publishes the report.

An engine's steps can't do this work, because an engine runs no steps while it has no requests, and because steps must
not wait for files or for HTTP. The thread changes zones only while it holds the engine's ``zone_lock``, which is free
between two steps.
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
    """Reads the files of the pool's identity, such as API keys, to report their problems and their digest."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.identity_dir
        self._keys = KeyRing(settings.keys_dir, settings.seal_key)
        self._declared: IdentityConfig | None = None
        self._identity = make_identity(None, self._keys, self._folder)

    def read_on(self) -> None:
        """Read the next key files, if a new version of the key folder has been read only in part."""
        if self._keys.is_partly_read:
            self._keys.refresh()

    @property
    def keys_digest(self) -> str:
        """Digest of the API keys that were last read."""
        return self._keys.digest

    def look(self, declared: IdentityConfig | None) -> IdentityReport:
        """Read the identity's files if they have changed, and return the report of the identity.

        Args:
            declared: the identity in the config in force; None for API keys.
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
"""Maximum seconds for which a scrape waits for new figures. After this time, the scrape gets the previous figures."""


class Housekeeping:
    """Does an engine's periodic work, from new configs to the report, on a thread.

    Args:
        engine: the engine of the zones.
        settings: the process's settings.
    """

    def __init__(self, engine: ServedEngine, settings: Settings) -> None:
        self._engine = engine
        self._pod, self._pod_uid, self._boot_id = settings.pod_name, settings.pod_uid, uuid4().hex
        self._started_unix_time = time.time()
        self._auditing = Auditing(engine, open_journal(engine, settings, self._started_unix_time))
        self.admin_access = AdminAccess(None if settings.admin_open else settings.admin_token_dir)
        """Decides which clients may use the admin port. Each turn reads its tokens again."""
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
        # Apply the first config now, before a request can arrive, so that each request's zone exists.
        self.turn()

    @property
    def report(self) -> EngineReport:
        """The newest report. It is immutable. Reading it makes the next turn publish a new report. Thread-safe."""
        self._is_asked_for = True
        return self._report

    def figures(self) -> EngineFigures:
        """Returns new figures for a scrape; after `SCRAPE_SECONDS` without new figures, the last ones. Thread-safe."""
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
        """Do one turn of the periodic work, such as applying a new config or timeouts, and publishing a report."""
        has_news = self._reloading.turn()
        rejection = self._applied.rejection
        self._applied.show(self._reloading.in_force)
        has_news |= self._applied.rejection is not rejection
        has_news |= self._salting.turn()
        has_news |= self._look_at_api_servers()
        self.admin_access.poll()
        self._engine.let_time_pass()
        self._auditing.turn()
        # Making a report of a thousand zones takes milliseconds. So do not make a report in each turn if none is read.
        if has_news or self._is_asked_for or time.monotonic() - self._published >= REPORT_SECONDS:
            self._publish()
        if self._is_scraped:
            self._take_figures()

    def _take_figures(self) -> None:
        # Clear the flag before making the figures, because a scrape that arrives meanwhile needs newer figures.
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
        """Returns the config's status, with the API server's rejection unless the engine itself rejected the config."""
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
                # Only log the error, because the engine must continue to serve. The health check detects that the
                # report becomes stale.
                if repr(error) != reported:
                    logger.exception("housekeeping failed and will be retried; configs and timeouts may not be applied")
                reported = repr(error)
