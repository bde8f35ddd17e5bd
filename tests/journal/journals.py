"""Journals for the tests: written record by record, without the writer's thread."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tenantzone_runtime.journal.reading import read_journal
from tenantzone_runtime.journal.record import BEFORE_FIRST, EngineRun, JournalEvent, Link, encode
from tenantzone_runtime.zones.audit.events import Balance

ENGINE = EngineRun("engine-0", 1_800_000_000.0, "0.32.0", capacity_blocks=1000, block_size_tokens=16)


def balance(zone: str, blocks: int) -> Balance:
    """A record that is identified by a number."""
    return Balance(zone, blocks, above_reservation=0, released=0, held=blocks)


def chain(
    events: Iterable[JournalEvent], after: Link = BEFORE_FIRST, *, engine: str = "engine-0@x", at: float = 0.0
) -> list[bytes]:
    """The lines of a journal, all with the same time (Unix, seconds)."""
    lines = []
    for event in events:
        line, after = encode(event, after, engine=engine, at=at, offset=0.0)
        lines.append(line)
    return lines


def some_chain(length: int) -> list[bytes]:
    return chain(balance("acme", number + 1) for number in range(length))


def put(folder: Path, *files: Sequence[bytes]) -> Path:
    """Writes a journal of the given files into a folder."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for number, lines in enumerate(files, start=1):
        (folder / f"journal-{number:08d}.jsonl").write_bytes(b"".join(lines))
    return folder


def records(folder: Path) -> list[dict]:
    """All records of a valid journal."""
    return [entry.record for entry in read_journal(folder)]


def kinds(folder: Path) -> list[str]:
    return [record["kind"] for record in records(folder)]


def written_with(line: bytes, **changes: object) -> bytes:
    """A record with other fields and its old hash."""
    return json.dumps(json.loads(line) | changes).encode() + b"\n"


def eventually(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)
