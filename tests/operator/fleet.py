"""Simulated engines: they send the real report over HTTP and read the real config, as kubelet would show it."""

import json
import threading
import time
from base64 import b64decode
from collections.abc import Collection
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import structs

from hack.harness.lies import Lie, truth
from tenantzone_contract.keys.salt import SALT_KEY_FILE, parse_salt_key, salt_key_id, salt_secret_name
from tenantzone_contract.reports.report import (
    AdminPortStatus,
    ConfigStatus,
    EngineReport,
    IdentityReport,
    Rejection,
    SaltKeyStatus,
    dump_report,
)
from tenantzone_contract.reports.zone_report import PurgeReport, ZoneReport
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION, ConfigError, RuntimeConfig
from tenantzone_contract.zone_config.fitting import grants
from tenantzone_contract.zone_config.identity import identity_digest
from tenantzone_contract.zone_config.packing import files_of, unpack_config
from tests.operator.kube import Kube


class SimulatedEngine:
    """One engine pod: its admin server, and a stand-in for its kubelet.

    Like kubelet, it looks at ConfigMap and Secret only when the pod's annotation changes, except for a Secret that it
    does not have yet. ``look_seconds`` is the time between its looks at the pod.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        *,
        pool: str,
        ip: str,
        port: int,
        blocks: int,
        look_seconds: float = 0.05,
        accepts: Collection[str] | None = None,
    ) -> None:
        self._kube = kube
        self._look_seconds = look_seconds
        self._pod_path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._config_path = f"/api/v1/namespaces/{namespace}/configmaps/tenantzone-{pool}"
        self._secret_path = f"/api/v1/namespaces/{namespace}/secrets/{salt_secret_name(pool)}"
        self.name, self.ip, self.port, self.blocks = name, ip, port, blocks
        self.refusal = ""
        """The error with which new configs are refused."""
        self.refuses_older = False
        """Whether it refuses a config that is older than the one in force, as one that demands signatures does."""
        self.identity_problem = ""
        """The reason why its frontend admits no tenant."""
        self.cached: dict[str, int] = {}
        """Blocks that zones hold."""
        self.details: dict[str, dict[str, Any]] = {}
        """Further fields of zones' reports."""
        self.registered: tuple[ZoneReport, ...] = ()
        """Zones that it made for tenants without a TenantZone."""
        self.lie: Lie | None = None
        """Sent instead of a report."""
        self.salt_key = SaltKeyStatus()
        self.admin_port = AdminPortStatus()
        self.accepts = accepts
        """Tokens: a request must have one of them. None: it answers all requests."""
        self.polls = 0
        self._purges: dict[str, PurgeReport] = {}
        self._config: RuntimeConfig | None = None
        self._status = ConfigStatus(demands_signature=True)
        self._stopping = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._kubelet = threading.Thread(target=self._watch_pod, daemon=True)

    def start(self) -> None:
        self._serve()
        self._kubelet.start()

    def stop(self) -> None:
        self._stopping.set()
        self._kubelet.join()
        self.hang_up()

    def hang_up(self) -> None:
        """Stops answering, like an engine that died."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def come_back(self) -> None:
        """Answers again, with its whole state."""
        self._serve()

    def sync(self) -> None:
        """Reads the ConfigMap and applies it, or refuses it as the real engine does."""
        found = self._kube.get(self._config_path)
        if found is None:
            return
        rejected = None
        try:
            config = unpack_config(files_of(found))
            if self.refusal:
                raise ConfigError(self.refusal)
        except ConfigError as error:
            rejected = Rejection(error=str(error), unix_time=time.time())
        else:
            if self.refuses_older and config.generation < (self._status.applied_generation or 0):
                rejected = Rejection(
                    generation=config.generation,
                    error="it is older",
                    untrusted=True,
                    newest_generation=self._status.applied_generation,
                    unix_time=time.time(),
                )
        if rejected is not None:
            self._status = structs.replace(self._status, rejected=rejected)
        else:
            self._purge(config)
            self._config = config
            self._status = ConfigStatus(
                applied_generation=config.generation, applied_hash=config.hash, demands_signature=True
            )

    def _purge(self, config: RuntimeConfig) -> None:
        """Carries out new purges; a new zone has nothing cached."""
        known = {zone.name for zone in self._config.zones} if self._config is not None else set()
        for zone in config.zones:
            done = self._purges.get(zone.name)
            if zone.purge and (done is None or done.id != zone.purge):
                evicted = self.cached.pop(zone.name, 0) if zone.name in known else 0
                self._purges[zone.name] = PurgeReport(id=zone.purge, evicted=evicted)

    def sync_salt_key(self) -> None:
        """Reads the Secret of the salt key; the key stays if the Secret is gone."""
        found = self._kube.get(self._secret_path)
        if found is not None:
            self.salt_key = SaltKeyStatus(id=salt_key_id(parse_salt_key(b64decode(found["data"][SALT_KEY_FILE]))))
        elif self.salt_key.id:
            self.salt_key = structs.replace(self.salt_key, error="the file is missing")

    def report(self) -> EngineReport:
        zones = self._config.zones if self._config is not None else ()
        held = zip(zones, grants(zones, self.blocks), strict=True)
        return EngineReport(
            engine_version="simulated",
            pod=self.name,
            capacity_blocks=self.blocks,
            block_size_tokens=16,
            free_blocks=self.blocks,
            config=self._status,
            salt_key=self.salt_key,
            identity=self._identity(),
            admin_port=self.admin_port,
            zones=self.registered
            + tuple(
                ZoneReport(
                    name=zone.name,
                    tenant=zone.tenant,
                    generation=zone.generation,
                    state="Idle" if self.cached.get(zone.name) else "Evicted",
                    reserved=grant.reserved,
                    limit=grant.limit,
                    awaited_reservation=grant.lacking,
                    in_use=0,
                    cached=self.cached.get(zone.name, 0),
                    purge=self._purges.get(zone.name),
                    **self.details.get(zone.name, {}),
                )
                for zone, grant in held
            ),
            started_unix_time=0.0,
            published_unix_time=time.time(),
        )

    def _identity(self) -> IdentityReport:
        declared = self._config.pool.identity if self._config is not None else None
        kind = declared.kind if declared is not None else "APIKeys"
        return IdentityReport(kind=kind, digest=identity_digest(declared), problem=self.identity_problem)

    def _watch_pod(self) -> None:
        shown = None
        while not self._stopping.wait(self._look_seconds):
            try:
                pod = self._kube.get(self._pod_path)
                annotation = (pod or {}).get("metadata", {}).get("annotations", {}).get(CONFIG_HASH_ANNOTATION)
                if annotation != shown or not self.salt_key.id:
                    self.sync_salt_key()
                if annotation != shown:
                    self.sync()
                    shown = annotation
            except OSError:
                continue  # the API server is away

    def _serve(self) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                engine.polls += 1
                shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
                if engine.accepts is not None and shown not in engine.accepts:
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Bearer realm="tenantzone"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                answer = (engine.lie.tell if engine.lie is not None else truth)(
                    json.loads(dump_report(engine.report()))
                )
                engine._stopping.wait(answer.delay_seconds)
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                if answer.length is not None:
                    self.send_header("Content-Length", str(answer.length))
                # The client may have stopped reading.
                with suppress(ConnectionError):
                    self.end_headers()
                    for piece in answer.pieces:
                        engine._stopping.wait(answer.pause_seconds)
                        self.wfile.write(piece)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((self.ip, self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


def pod_manifest(name: str, labels: dict[str, str]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "containers": [{"name": "engine", "image": "simulated"}],
        },
    }


def pod_status(ip: str, *, ready: bool) -> dict[str, object]:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}}
