"""Debian's real Prometheus scrapes an admin port: native histograms if it asks for them, and classic ones otherwise."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.controlplane.server import Server
from hack.debian import ensure
from hack.ports import free_ports
from tenantzone_contract.keys.admin_token import TOKEN_FILE, admin_secret_data, admin_token
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tenantzone_runtime.zones.model.counters import Counters
from tests.runtime.scraping import figures, scraped, zone

QUANTILE = 0.9
SECONDS = [0.001 * 1.05**number for number in range(200)]
"""From one millisecond to 16 seconds."""
IN_TRUTH = sorted(SECONDS)[int(QUANTILE * len(SECONDS))]

NATIVE = f"histogram_quantile({QUANTILE}, tenantzone_zone_queue_time_seconds)"
CLASSIC = f"histogram_quantile({QUANTILE}, tenantzone_zone_queue_time_seconds_bucket)"
DEADLINE_SECONDS = 60


class Prometheus:
    def __init__(self, address: str, server: Server) -> None:
        self._address = address
        self._server = server

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series, as soon as there is one."""
        url = f"{self._address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline and self._server.is_running:
            try:
                with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as response:
                    result = json.load(response)["data"]["result"]
            except OSError:
                result = []
            if result:
                return [(each["metric"], float(each["value"][1])) for each in result]
            time.sleep(0.1)
        raise AssertionError(f"no answer to {expression}; {self._server.log_tail()}")


@contextmanager
def prometheus(folder: Path, *flags: str) -> Iterator[Prometheus]:
    """A Prometheus that scrapes a closed admin port with one zone and constant figures."""
    secret = folder / "admin"
    secret.mkdir()
    for name, content in admin_secret_data([admin_token(b"k" * 32, "models", "demo")]).items():
        (secret / name).write_bytes(content)
    counters = Counters()
    for each in SECONDS:
        counters.queue_time.observe(each)
    (port,) = free_ports(1)
    config = folder / "prometheus.yml"
    shown = figures(zones=(zone(counters=counters),))
    with scraped(lambda: shown, AdminAccess(secret)) as url, (folder / "lock").open("w") as lock:
        targets = [{"targets": [url.removeprefix("http://")]}]
        job = {"job_name": "engine", "scrape_interval": "1s", "scrape_timeout": "1s", "static_configs": targets}
        jobs = [job | {"authorization": {"credentials_file": str(secret / TOKEN_FILE)}}]
        config.write_text(json.dumps({"scrape_configs": jobs}))
        command = [
            ensure("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", *flags,
        ]  # fmt: skip
        server = Server(command, log=folder / "prometheus.log", keep_open=lock.fileno())
        try:
            yield Prometheus(f"http://127.0.0.1:{port}", server)
        finally:
            server.stop()


def test_with_native_histograms_a_quantile_is_exact_to_the_width_of_a_bucket(tmp_path):
    with prometheus(tmp_path, "--enable-feature=native-histograms") as running:
        ((labels, seconds),) = running.query(NATIVE)
        assert labels == {
            "job": "engine",
            "instance": labels["instance"],
            "pool": "shared",
            "zone": "acme-zone",
            "tenant": "acme",
        }
        assert seconds == pytest.approx(IN_TRUTH, rel=0.09)
        assert [count for _, count in running.query("histogram_count(tenantzone_zone_queue_time_seconds)")] == [200]
        ((_, total),) = running.query("histogram_sum(tenantzone_zone_queue_time_seconds)")
        assert total == pytest.approx(sum(SECONDS))
        assert [up for _, up in running.query("up")] == [1]
        assert [blocks for _, blocks in running.query("tenantzone_engine_capacity_blocks")] == [255]
        lost = running.query("tenantzone_zone_taken_blocks_total")
        assert [blocks for _, blocks in lost] == [0]


def test_without_them_the_classic_buckets_give_the_quantile(tmp_path):
    with prometheus(tmp_path) as running:
        ((_, seconds),) = running.query(CLASSIC)
        assert 5.0 < seconds <= 10.0
        assert 5.0 < IN_TRUTH <= 10.0
        assert [count for _, count in running.query("tenantzone_zone_queue_time_seconds_count")] == [200]
