"""Evaluates the rules' expressions over a history with a real Prometheus."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TextIO

from bench.alerts.history import SCRAPE_SECONDS
from hack.controlplane.server import Server
from hack.debian import ensure
from hack.monitoring.model import Recording
from hack.monitoring.recordings import recordings
from hack.monitoring.time_scale import REAL_TIME
from hack.ports import free_ports

Series = dict[str, list[tuple[float, float]]]
"""Samples by zone, as pairs of Unix time and value."""

_START_SECONDS = 60.0


class Written(Protocol):
    """A history, such as a ``History``."""

    def write(self, file: TextIO) -> None:
        """Write the history in the OpenMetrics format, one metric after the other."""


class Prometheus:
    """A Prometheus that has one history and scrapes nothing.

    Args:
        url: the URL of the Prometheus.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, expression: str, start: float, end: float, step: float) -> Series:
        """Returns the results of an expression over time; recording rules are replaced by their expressions."""
        query = {"query": expand(expression), "start": start, "end": end, "step": step}
        with urllib.request.urlopen(f"{self._url}/api/v1/query_range?{urllib.parse.urlencode(query)}") as answer:
            found = json.load(answer)["data"]["result"]
        return {
            each["metric"].get("zone", ""): [(float(at), float(value)) for at, value in each["values"]]
            for each in found
        }


def expand(expression: str) -> str:
    """Returns the expression with recording rules expanded, because a history has none; ranges become subqueries."""
    every = {rule.name: rule for rule in recordings(REAL_TIME) if isinstance(rule, Recording)}
    pattern = re.compile(rf"({'|'.join(sorted(map(re.escape, every), key=len, reverse=True))})(?:\[(\w+)\])?(?![\w:])")
    while pattern.search(expression):
        expression = pattern.sub(
            lambda found: (
                f"({every[found[1]].expression})" + (f"[{found[2]}:{SCRAPE_SECONDS:.0f}s]" if found[2] else "")
            ),
            expression,
        )
    return expression


@contextmanager
def serving(history: Written, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus with this history until the block ends."""
    text, data = folder / "history.txt", folder / "data"
    with text.open("w") as file:
        history.write(file)
    promtool = (ensure("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data)
    subprocess.run(promtool, check=True, stdout=subprocess.DEVNULL)
    (folder / "empty.yml").write_text("{}")
    (port,) = free_ports(1)
    command: list[str | Path] = [
        ensure("prometheus"), "--config.file", folder / "empty.yml", "--storage.tsdb.path", data,
        "--storage.tsdb.retention.time", "100y", "--web.listen-address", f"127.0.0.1:{port}",
        # A removed zone's series end at the next scrape, as if Prometheus had scraped the engine.
        "--query.lookback-delta", f"{SCRAPE_SECONDS * 1.5:.0f}s", "--query.max-samples", "500000000",
    ]  # fmt: skip
    with (folder / "lock").open("w") as lock:
        server = Server(command, log=folder / "prometheus.log", keep_open=lock.fileno())
        try:
            _await_ready(f"http://127.0.0.1:{port}", server)
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            server.stop()


def _await_ready(url: str, server: Server) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/-/ready").close()
            return
        except OSError:
            if time.monotonic() > deadline or not server.is_running:
                raise RuntimeError(server.log_tail()) from None
            time.sleep(0.1)
