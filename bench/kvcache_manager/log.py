"""``python -m bench.kvcache_manager.log``: measures the size of SQLite's WAL during steady writes to the index.

Each write changes 65 records with random keys in one commit, like a prompt of 64 blocks. The output has the number of
writes, the size of the WAL file, how often the WAL was restarted, the slowest write, and the longest time for which no
other task could run.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from hack.progress import say
from tenantzone_manager.index.backend import Address, Change, Commit
from tenantzone_manager.index.sqlite import SqliteBackend

NAME: Final = "log"
_RECORDS: Final = 65
_VALUE: Final = bytes(110)
_TELL_SECONDS: Final = 5.0
_TURN_SECONDS: Final = 0.001


def main() -> None:
    """Write at each rate, and print a line of results for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager.log", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each rate (default: %(default)s)")
    parser.add_argument(
        "--pauses", type=float, nargs="+", default=[50.0, 5.0, 0.0], metavar="MS",
        help="between two writes (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args()
    print(
        "| pause, ms | writes a second | log's file, MB | begun anew | slowest write, ms | longest turn, ms |",
        flush=True,
    )
    print("|---|---|---|---|---|---|", flush=True)
    for pause in options.pauses:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_write(Path(folder) / "index.db", options.seconds, pause / 1000))


class _Turns:
    """Measures how long a task that does nothing else waits for its next turn in the event loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task = asyncio.create_task(self._take())

    def end(self) -> None:
        """Stop the measurement."""
        self._task.cancel()

    async def _take(self) -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(_TURN_SECONDS)
            now = time.perf_counter()
            self.longest = max(self.longest, now - before - _TURN_SECONDS)
            before = now


async def _write(path: Path, seconds: float, pause: float) -> None:
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    log = path.with_name(f"{path.name}-wal")
    turns = _Turns()
    began = reported = time.perf_counter()
    writes, largest, slowest = 0, 0, 0.0
    while (now := time.perf_counter()) - began < seconds:
        changes = [Change(Address("blocks", random.randbytes(32)), None, _VALUE) for _ in range(_RECORDS)]
        asked = time.perf_counter()
        await backend.commit(Commit(changes))
        slowest = max(slowest, time.perf_counter() - asked)
        writes += 1
        largest = max(largest, log.stat().st_size)
        if now - reported >= _TELL_SECONDS:
            reported = now
            say(NAME, f"{writes:,} writes, {largest / 1e6:,.0f} MB")
        await asyncio.sleep(pause)
    turns.end()
    # The WAL's header counts its checkpoints, https://sqlite.org/walformat.html.
    with log.open("rb") as file:
        begun = int.from_bytes(file.read(16)[12:])
    await backend.close()
    rate = writes / (time.perf_counter() - began)
    figures = f"{1000 * pause:g}", f"{rate:,.0f}", f"{largest / 1e6:,.0f}", f"{begun}"
    print(f"| {' | '.join(figures)} | {1000 * slowest:.0f} | {1000 * turns.longest:.0f} |", flush=True)


if __name__ == "__main__":
    main()
