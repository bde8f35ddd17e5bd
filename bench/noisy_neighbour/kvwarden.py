"""Runs KVWarden, a proxy that throttles tenants, from its Python package in front of an engine."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

from bench.end_to_end.engines import MODEL, EngineError
from bench.noisy_neighbour.arms import SEATS
from hack import locked
from hack.ports import free_ports

TENANT_HEADER = "X-Tenant-ID"
_LOCK = Path(__file__).parents[2] / "requirements" / "kvwarden.txt"
_START_SECONDS = 60.0


@contextmanager
def in_front_of(engine_url: str, folder: Path, *, requests_per_minute: int) -> Iterator[str]:
    """Start KVWarden with its authors' settings for fairness between tenants; yields its URL.

    KVWarden has a token bucket of requests for each tenant, with the same size for all tenants, and deficit round-robin
    among waiting requests. As its documentation recommends, the bucket holds the requests of one second.

    Args:
        engine_url: the URL of the engine.
        folder: the folder for its config and log.
        requests_per_minute: the number of requests that a tenant may send per minute.

    Raises:
        EngineError: KVWarden does not start.
        CommandFailed: KVWarden can't be installed.
    """
    (port,) = free_ports(1)
    config = {
        "host": "127.0.0.1",
        "port": port,
        "max_concurrent": SEATS,
        "models": [{"model_id": MODEL, "short_name": MODEL, "port": int(engine_url.rpartition(":")[2])}],
        "tenant_defaults": {
            "scheduling": "drr",
            "rate_limit_rpm": requests_per_minute,
            "rate_limit_burst": max(1, requests_per_minute // 60),
        },
    }
    (folder / "kvwarden.yaml").write_text(yaml.safe_dump(config))
    program = locked.environment("kvwarden", _LOCK) / "bin" / "kvwarden"
    with (folder / "kvwarden.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", "--config", folder / "kvwarden.yaml", "--no-interactive"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # The variable makes KVWarden use the existing engine instead of starting one.
            env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "KVWARDEN_DEV_SKIP_ENGINE_LAUNCH": "1"},
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _await_ready(process, url, folder / "kvwarden.log")
        yield url
    finally:
        process.terminate()
        process.wait()


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    began = time.monotonic()
    while time.monotonic() - began < _START_SECONDS and process.poll() is None:
        try:
            if httpx.get(f"{url}/v1/models", timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise EngineError(f"KVWarden does not answer; the end of its log:\n{log.read_text(errors='replace')[-2000:]}")
