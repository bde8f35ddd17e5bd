"""``python -m bench.kvcache_manager.log``: SQLite's log beside the index's file, while blocks are written steadily.

Each write changes 65 records, with keys by chance, in one commit, as a prompt of 64 blocks does. It says how many there
were, how large the log's file became, how often the log was begun anew, and the longest time in which nobody else had a
turn.
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


def main() -> None:
    """Write at each rate, and print a line for it."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager.log", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each rate (default: %(default)s)")
    parser.add_argument(
        "--pauses", type=float, nargs="+", default=[50.0, 5.0, 0.0], metavar="MS",
        help="between two writes (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args()
    print("| pause, ms | writes a second | log's file, MB | begun anew | longest turn, ms |", flush=True)
    print("|---|---|---|---|---|", flush=True)
    for pause in options.pauses:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_write(Path(folder) / "index.db", options.seconds, pause / 1000))


async def _write(path: Path, seconds: float, pause: float) -> None:
    backend = SqliteBackend(path)
    await backend.start(lambda *_: None)
    log = path.with_name(f"{path.name}-wal")
    began = told = turn = time.perf_counter()
    writes, largest, longest = 0, 0, 0.0
    while (now := time.perf_counter()) - began < seconds:
        longest = max(longest, now - turn - pause)
        turn = now
        changes = [Change(Address("blocks", random.randbytes(32)), None, _VALUE) for _ in range(_RECORDS)]
        await backend.commit(Commit(changes))
        writes += 1
        largest = max(largest, log.stat().st_size)
        if now - told >= _TELL_SECONDS:
            told = now
            say(NAME, f"{writes:,} writes, {largest / 1e6:,.0f} MB")
        await asyncio.sleep(pause)
    # A number in its head, https://sqlite.org/walformat.html.
    with log.open("rb") as file:
        begun = int.from_bytes(file.read(16)[12:])
    await backend.close()
    rate = writes / (time.perf_counter() - began)
    print(f"| {1000 * pause:g} | {rate:,.0f} | {largest / 1e6:,.0f} | {begun} | {1000 * longest:.0f} |", flush=True)


if __name__ == "__main__":
    main()
