"""``python -m bench.kvcache_manager.stores``: compares SQLite in WAL mode with an LSM store, with the index's queries.

Records are as large as the index's record of a block. A read has 1,000 random keys, and a write changes 65 records at
once.
"""

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import rocksdict

from hack.progress import say

NAME: Final = "stores"
_VALUE: Final = 110
"""Size of a record, in bytes."""
_ROUNDS: Final = 200


class Sqlite:
    """SQLite as index/sqlite.py uses it."""

    name = "SQLite, WAL"

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "index.db", isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -262144", f"mmap_size = {2**40}"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE IF NOT EXISTS record (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def write(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """All of them or none."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT OR REPLACE INTO record VALUES (?, ?)", records)
        self._database.execute("COMMIT")

    def read(self, keys: Sequence[bytes]) -> int:
        """Returns how many of the keys exist."""
        found = 0
        for begin in range(0, len(keys), 500):
            some = keys[begin : begin + 500]
            marks = ",".join("?" * len(some))
            statement = f"SELECT key, value FROM record WHERE key IN ({marks})"
            found += len(self._database.execute(statement, some).fetchall())
        return found

    def close(self) -> None:
        """Close the store."""
        self._database.close()


class Rocks:
    """RocksDB, through the package rocksdict."""

    name = "RocksDB"

    def __init__(self, folder: Path) -> None:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self._database = rocksdict.Rdict(str(folder / "rocks"), options)

    def write(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """All of them or none."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in records:
            batch.put(key, value)
        self._database.write(batch)

    def read(self, keys: Sequence[bytes]) -> int:
        """Returns how many of the keys exist."""
        return sum(value is not None for value in self._database.get(list(keys)))

    def close(self) -> None:
        """Close the store."""
        self._database.close()


def main() -> None:
    """Measure both stores and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager.stores", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    keys = [random.randbytes(32) for _ in range(options.records)]
    print(f"{options.records:,} records; milliseconds, median and 99th percentile of {_ROUNDS}\n")
    print("| store | read 1,000 | write 65 | bytes per record | open again, ms |\n|---|---|---|---|---|")
    for kind in (Sqlite, Rocks):
        with tempfile.TemporaryDirectory() as folder:
            _measure(kind, Path(folder), keys)


def _measure(kind: Callable[[Path], Any], folder: Path, keys: Sequence[bytes]) -> None:
    store = kind(folder)
    for begin in range(0, len(keys), 10_000):
        store.write([(key, random.randbytes(_VALUE)) for key in keys[begin : begin + 10_000]])
        if begin % 200_000 == 0:
            say(NAME, f"{store.name}: {begin:,} records written")
    reads = _times(lambda: store.read(random.sample(keys, 1000)))
    writes = _times(lambda: store.write([(key, random.randbytes(_VALUE)) for key in random.sample(keys, 65)]))
    store.close()
    began = time.perf_counter()
    again = kind(folder)
    again.read(keys[:1])
    opened = 1000 * (time.perf_counter() - began)
    again.close()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / len(keys)
    print(f"| {store.name} | {reads} | {writes} | {size:.0f} | {opened:.1f} |", flush=True)


def _times(work: Callable[[], object]) -> str:
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return f"{statistics.median(times):.2f}, {statistics.quantiles(times, n=100)[98]:.2f}"


if __name__ == "__main__":
    main()
