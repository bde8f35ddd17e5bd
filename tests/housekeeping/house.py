"""Housekeeping for an engine as a pod has it: a projected config folder, a thread, an admin port, a journal."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tenantzone_contract.cache.blocks import BlockMap, parse_block_map
from tenantzone_contract.keys.admin_token import ACCEPTED_FILE
from tenantzone_contract.keys.salt import SALT_KEY_FILE
from tenantzone_contract.reports.report import EngineReport, parse_report
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_signature import SIGNATURE_KEY, sign_config
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.housekeeping.service import Service
from tenantzone_runtime.reload import ConfigSource
from tenantzone_runtime.settings import read_settings
from tests.journal.journals import eventually
from tests.runtime.folders import project
from tests.runtime.scraping import get, series
from tests.waiting import await_that


class House:
    """Housekeeping from its start to its end; configs go in through the folder, and reports come over HTTP.

    Args:
        folder: the folder for the config, the salt key and the journal.
        text: the config that exists before the engine; None: no config.
        variables: environment variables.
    """

    def __init__(self, engine: ServedEngine, folder: Path, *, text: str | None = None, **variables: str) -> None:
        self._config = folder / "config"
        self._tokens = folder / "admin"
        self._salt = folder / "salt"
        self.journal = folder / "journal"
        self._state = folder / "state"
        self._state.mkdir(mode=0o700, exist_ok=True)
        self._generations = itertools.count(1)
        if text is not None:
            self.project(text)
        environ = {
            "POD_NAME": "engine-0",
            "TENANTZONE_CONFIG_DIR": str(self._config),
            "TENANTZONE_SALT_DIR": str(self._salt),
            "TENANTZONE_ADMIN_TOKEN_DIR": str(self._tokens),
            "TENANTZONE_JOURNAL_DIR": str(self.journal),
            "TENANTZONE_STATE_DIR": str(self._state),
            "TENANTZONE_ADMIN_HOST": "127.0.0.1",
            "TENANTZONE_ADMIN_PORT": "0",
            "TENANTZONE_ADMIN_OPEN": "1",
            "TENANTZONE_METRICS_LEVEL": "full",
        }
        self._service = Service(engine, read_settings(environ | variables))
        self._url = f"http://127.0.0.1:{self._service.admin_port}"

    def __enter__(self) -> Self:
        self._service.start()
        self._is_running = True
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the engine; harmless if called more than once."""
        if self._is_running:
            self._is_running = False
            self._service.stop()

    # Configs

    def project(self, text: str) -> None:
        """Projects a config, as kubelet does with a ConfigMap."""
        project(self._config, {"config.json": text})

    def project_signed(self, text: str, token: str) -> None:
        """The same, signed with a token."""
        files = {"config.json": text.encode()}
        project(self._config, files | {SIGNATURE_KEY: sign_config(files, [token], "2026-01-01T00:00:00Z")})

    def give_tokens(self, *tokens: str) -> None:
        """Projects the admin port's tokens, as kubelet does with their Secret."""
        project(self._tokens, {ACCEPTED_FILE: "\n".join(tokens)})

    def give_salt_key(self, key: bytes) -> None:
        """Projects a salt key, as kubelet does with its Secret."""
        project(self._salt, {SALT_KEY_FILE: key.hex()})

    def declare(self, *zones: ZoneConfig, **pool: Any) -> int:
        """Projects the next config. Returns its generation."""
        generation = next(self._generations)
        about = PoolConfig(namespace="models", name="main", **pool)
        self.project(dump_config(make_config(generation, about, zones)))
        return generation

    def enforce(self, *zones: ZoneConfig, **pool: Any) -> int:
        """The same, and waits until the config is active."""
        generation = self.declare(*zones, **pool)
        self.await_report(lambda report: report.config.applied_generation == generation)
        return generation

    def remove_config(self) -> None:
        """Leaves the folder as it is when its ConfigMap is gone."""
        shutil.rmtree(self._config)

    # Reports

    def of_frontend(self) -> ConfigSource:
        """The config as the frontend sees it."""
        source = ConfigSource(self._state)
        source.poll()
        return source

    def report(self) -> EngineReport:
        return parse_report(self._get("/report"))

    def await_report(self, holds: Callable[[EngineReport], object]) -> EngineReport:
        """The first report for which the condition holds."""
        reports: list[EngineReport] = []

        def reported() -> object:
            reports.append(self.report())
            return holds(reports[-1])

        eventually(reported)
        return reports[-1]

    def await_zone(self, tenant: str, **fields: object) -> ZoneReport:
        """The first report of a zone with all given values."""

        def found(report: EngineReport) -> list[ZoneReport]:
            return [
                zone
                for zone in report.zones
                if zone.tenant == tenant and all(getattr(zone, name) == value for name, value in fields.items())
            ]

        return found(self.await_report(found))[0]

    def metric(self, name: str, **labels: str) -> float:
        """The current value in a scrape."""
        return series(self._get("/metrics").decode())[f"tenantzone_{name}", frozenset(labels.items())]

    def await_metric(self, value: float, name: str, **labels: str) -> None:
        """Waits until a scrape has this value."""
        key = f"tenantzone_{name}", frozenset(labels.items())
        await_that(lambda: series(self._get("/metrics").decode()).get(key) == value, f"{name} of {value:g}")

    def picture(self, cells: int, tier: str = "") -> BlockMap:
        return parse_block_map(self._get(f"/blocks?cells={cells}{f'&tier={tier}' if tier else ''}"))

    def _get(self, path: str) -> bytes:
        status, _, body = get(self._url + path)
        assert status == 200, body
        return body
