"""Measures the latency of in-process requests to the frontend with 10 API keys and with many, which are in files.

There are pauses between requests, so the frontend checks the key files many times. The arms are measured in turn. Each
line has the times of one arm, and the ratio of its median to the median of the arm with 10 keys.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench.processes import importing_alike
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.responses.answers import Receive, Scope, Send
from tenantzone_runtime.settings import Settings

_FEW: Final = 10
_PAUSE_SECONDS: Final = 0.005
_KEY: Final = "key-of-tenant-{}"
_OLD: Final = 1e9
"""Modification time, in Unix seconds, old enough that a file counts as complete."""


def main() -> None:
    """Measure all arms in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000, help="of the large arms (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each arm (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round (default: %(default)s)")
    parser.add_argument("--rotate", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--rotation", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rotate:
        _project(options.rotate, options.keys, options.rotation)
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), options.keys, options.rounds, options.seconds))


async def _measure(folder: Path, keys: int, rounds: int, seconds: float) -> None:
    plain = _frontend(folder / "plain", lambda target: _write(target, keys))
    projected = _frontend(folder / "projected", lambda target: _project(target, keys, 0))
    few = _frontend(folder / "few", lambda target: _write(target, _FEW))
    arms: Mapping[str, Callable[[], Any]] = {
        f"{_FEW} keys": lambda: _ask(few, seconds),
        f"{keys:,} keys in a plain folder": lambda: _ask(plain, seconds),
        f"{keys:,} keys, projected": lambda: _ask(projected, seconds),
        "the same, one rotated": lambda: _ask_beside_rotation(projected, folder / "projected" / "keys", keys, seconds),
    }
    times: dict[str, list[list[float]]] = {name: [] for name in arms}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for name, arm in arms.items():
            times[name].append(await arm())
    usual = [statistics.median(each) for each in next(iter(times.values()))]
    print(f"{'':<36}{'requests':>9}{'p50':>10}{'p99':>10}{'longest':>10}{'p50, ratio':>12}")
    for name, measured in times.items():
        together = [each for one in measured for each in one]
        ratio = statistics.median(statistics.median(one) / base for one, base in zip(measured, usual, strict=True))
        p99 = statistics.quantiles(together, n=100)[98]
        figures = "".join(f"{1000 * each:>7.2f} ms" for each in (statistics.median(together), p99, max(together)))
        print(f"{name:<36}{len(together):>9}{figures}{ratio:>12.2f}")


async def _ask(app: TenantMiddleware, seconds: float) -> list[float]:
    """Request the list of models until the time is over; returns the seconds that each request took."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        status = await _status(app)
        times.append(time.perf_counter() - began)
        if status != 200:
            raise RuntimeError(f"the frontend answered with status {status}")
        await asyncio.sleep(_PAUSE_SECONDS)
    return times


async def _ask_beside_rotation(app: TenantMiddleware, keys_folder: Path, keys: int, seconds: float) -> list[float]:
    async with _rotating(keys_folder, keys):
        return await _ask(app, seconds)


@asynccontextmanager
async def _rotating(folder: Path, keys: int) -> AsyncIterator[None]:
    """Change one tenant's key while the block runs, by swapping a symlink as kubelet does."""
    rotation = int((folder / "..data").readlink().name.removeprefix("..v")) + 1
    # Use a separate process, because kubelet is one, too.
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.frontend.many_keys", "--rotate", folder,
        "--rotation", str(rotation), "--keys", str(keys),
        env=importing_alike(),
    )  # fmt: skip
    try:
        yield
    finally:
        await process.wait()


async def _status(app: TenantMiddleware) -> int:
    """Send one request of the first tenant; returns the status of the answer."""
    scope: Scope = {
        "type": "http", "method": "GET", "path": "/v1/models", "query_string": b"", "root_path": "",
        "headers": [(b"authorization", f"Bearer {_KEY.format(0)}".encode())],
        "extensions": {}, "state": {},
    }  # fmt: skip
    statuses = []

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)  # type: ignore[arg-type]
    return int(statuses[0])


def _frontend(folder: Path, give_keys: Callable[[Path], None]) -> TenantMiddleware:
    folder.mkdir()
    give_keys(folder / "keys")
    settings = Settings(
        config_dir=folder / "of the operator", state_dir=folder / "config", keys_dir=folder / "keys",
        salt_dir=folder / "salt", identity_dir=folder / "identity", admin_host="127.0.0.1", admin_port=0,
        admin_token_dir=folder / "admin", open_routes=frozenset(), seal_key=bytes(range(32)), pod_name="",
    )  # fmt: skip
    return TenantMiddleware(_models, settings)


async def _models(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands in for vLLM, and answers with an empty list of models."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"object":"list","data":[]}'})


def _write(folder: Path, keys: int) -> None:
    folder.mkdir()
    for number in range(keys):
        path = folder / f"t{number}"
        path.write_text(_KEY.format(number))
        os.utime(path, (_OLD, _OLD))


def _project(folder: Path, keys: int, rotation: int) -> None:
    """Write key files behind a swapped symlink, as kubelet does; each rotation except 0 changes one tenant's key."""
    new = folder / f"..v{rotation}"
    new.mkdir(parents=True)
    for number in range(keys):
        key = _KEY.format(number) + (f"-{rotation}" if rotation and number == keys - 1 else "")
        (new / f"t{number}").write_text(key)
    swapped = folder / "..data_tmp"
    swapped.symlink_to(new.name)
    swapped.rename(folder / "..data")


if __name__ == "__main__":
    main()
