"""A real Prometheus, a real Alertmanager, and a receiver of its alerts."""

import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.server import Server
from hack.debian import ensure
from tests.operator.kube import eventually

PROMETHEUS_PORT = 9090
ALERTMANAGER_PORT = 9093
WEBHOOK_PORT = 9094
PORTS = (PROMETHEUS_PORT, ALERTMANAGER_PORT, WEBHOOK_PORT)


class Webhook:
    """A user's pager: it keeps the alerts that it receives."""

    def __init__(self, address: str) -> None:
        self.alerts: list[dict[str, Any]] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                reported = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                webhook.alerts += reported["alerts"]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((address, WEBHOOK_PORT), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reported(self, status: str, name: str, **labels: str) -> dict[str, Any] | None:
        """The first matching alert; None if there is none yet."""
        wanted = {"alertname": name, **labels}.items()
        return next(
            (alert for alert in self.alerts if alert["status"] == status and wanted <= alert["labels"].items()), None
        )


class Prometheus:
    def __init__(self, address: str) -> None:
        self._url = f"http://{address}:{PROMETHEUS_PORT}"

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The current series of the expression."""
        return self._get("query", query=expression)["result"]

    def targets(self) -> list[dict[str, Any]]:
        return self._get("targets", state="active")["activeTargets"]

    def _get(self, what: str, **query: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(query)}", timeout=20) as answer:
            return json.load(answer)["data"]


@contextmanager
def alertmanager(address: str, folder: Path) -> Iterator[Webhook]:
    """An Alertmanager that sends each alert, and its end, within seconds."""
    webhook = Webhook(address)
    receiver = {
        "name": "webhook",
        "webhook_configs": [{"url": f"http://{address}:{WEBHOOK_PORT}/", "send_resolved": True}],
    }
    route = {"receiver": "webhook", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    config = folder / "alertmanager.yaml"
    config.write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    command = [
        *(ensure("alertmanager"), "--config.file", config, "--storage.path", folder / "alertmanager"),
        *("--web.listen-address", f"{address}:{ALERTMANAGER_PORT}", "--cluster.listen-address", ""),
    ]
    try:
        with _running(command, folder / "alertmanager.log") as server:
            _await_ready(f"http://{address}:{ALERTMANAGER_PORT}", server)
            yield webhook
    finally:
        webhook.stop()


@contextmanager
def prometheus(address: str, folder: Path, config: dict[str, Any]) -> Iterator[Prometheus]:
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [
        *(ensure("prometheus"), "--config.file", file, "--storage.tsdb.path", folder / "prometheus"),
        *("--web.listen-address", f"{address}:{PROMETHEUS_PORT}", "--rules.alert.resend-delay", "1s"),
    ]
    with _running(command, folder / "prometheus.log") as server:
        _await_ready(f"http://{address}:{PROMETHEUS_PORT}", server)
        yield Prometheus(address)


def _await_ready(url: str, server: Server) -> None:
    def is_ready() -> bool:
        if not server.is_running:
            raise RuntimeError(server.log_tail())
        with urllib.request.urlopen(f"{url}/-/ready", timeout=10) as answer:
            return answer.status == 200

    eventually(is_ready)


@contextmanager
def _running(command: list[str | Path], log: Path) -> Iterator[Server]:
    with log.with_suffix(".lock").open("w") as lock:
        server = Server(command, log=log, keep_open=lock.fileno())
        try:
            yield server
        finally:
            server.stop()
