"""``tenantzone-manager events``: lists who wrote and read a block, and what happened in a zone, group or instance."""

import argparse
import math
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from tenantzone_contract.text import printable
from tenantzone_manager.events.reading import Selection, Tally, block_key, select
from tenantzone_manager.events.record import LOST, Event

_PROGRAM: Final = "tenantzone-manager events"
_WORDS: Final = {
    "get_cache_location": "read",
    "start_write_cache": "began to write",
    "finish_write_cache": "wrote",
    "remove_cache": "removed",
    "trim_cache": "removed",
    "evict": "evicted",
    "expire_write": "expired",
    "delete": "deleted",
    "copy_up": "copied up",
    "copy_down": "copied down",
}
_ROW: Final = "{:<24}  {:<22}  {:>6}  {:<28}  {:<20}  {:<22}  {}"
_COLUMNS: Final = ("TIME", "WHAT", "BLOCKS", "CALLER", "GROUP", "KEYS", "INSTANCE")


def main(arguments: Sequence[str]) -> None:
    """Print the selected events. The exit code is 1 if a file can't be read."""
    own = _parser().parse_args(arguments)
    selection = Selection(own.block or "", own.zone, own.pool, own.group, own.instance, own.caller, own.begin, own.end)
    tally = Tally()
    events = select(own.files, selection, tally)
    try:
        for line in _document(events, tally) if own.json else _table(events, tally, selection):
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:  # the program that reads this output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.exit(f"{_PROGRAM}: {error.filename or 'a file'} can't be read: {error.strerror}")


def _document(events: Iterator[Event], tally: Tally) -> Iterator[str]:
    """Generates one JSON object in pieces, because the events may not fit into memory."""
    yield '{"events": ['
    before = None
    for event in events:
        if before is not None:
            yield f"{before},"
        before = msgspec.json.encode(event).decode()
    if before is not None:
        yield before
    yield f'], "read": {tally.read}, "skipped": {tally.skipped}, "lost": {tally.lost}}}'


def _table(events: Iterator[Event], tally: Tally, selection: Selection) -> Iterator[str]:
    yield _ROW.format(*_COLUMNS)
    for event in events:
        for row in _rows(event, selection):
            yield _ROW.format(*map(printable, row)).rstrip()
    yield ""
    yield f"{tally.read} events in {len(tally.files)} files"
    if tally.skipped:
        yield f"{tally.skipped} lines are not events and were skipped"
    if tally.lost:
        yield f"{tally.lost} events are missing because they occurred faster than they could be written"


def _rows(event: Event, selection: Selection) -> Iterator[tuple[str, ...]]:
    """Generates one row for each outcome of an event. If ``selection`` has a block, other blocks are left out."""
    if event.event == LOST:
        until = f"until {_time(event.until)}" if event.until else ""
        yield _time(event.time), f"{event.events} lost", "", event.caller, "", until, ""
        return
    caller = f"{event.caller} ({event.pod})" if event.pod else event.caller
    for what, keys in _endings(event):
        shown = [key for key in keys if selection.block in ("", key)]
        if shown or not event.blocks:
            about = f"{shown[0]} +{len(shown) - 1}" if shown[1:] else "".join(shown) or event.storage or event.account
            yield _time(event.time), what, str(len(shown)), caller, event.group, about, event.instance


def _endings(event: Event) -> tuple[tuple[str, list[str]], ...]:
    what = _WORDS.get(event.event, event.event.replace("_", " "))
    if not event.blocks:
        return ((what, []),)
    return (what, event.keys), ("failed to write", event.failed), ("wrote too late", event.expired)


def _time(time: float) -> str:
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{time:g}"


def _read_time(text: str) -> float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a time such as 2026-11-01 or 2026-11-01T12:00:00Z, got {text!r:.60}"
        ) from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _read_key(text: str) -> str:
    try:
        return block_key(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=__doc__)
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="the file that each manager got as --events; rotated files are read, too",
    )
    parser.add_argument("--block", type=_read_key, metavar="KEY", help="only events of the block with this key, in hex")
    for name, metavar, text in (
        ("--zone", "TENANT", "only events of the zones of this tenant"),
        ("--pool", "NAMESPACE/POOL", "only events of instances of this pool"),
        ("--group", "NAME", "only events of this instance group"),
        ("--instance", "NAME", "only events of this instance"),
        ("--caller", "NAME", "only events caused by this caller; the manager itself is called manager"),
    ):
        parser.add_argument(name, default="", metavar=metavar, help=text)
    parser.add_argument(
        "--from",
        dest="begin",
        type=_read_time,
        default=-math.inf,
        metavar="TIME",
        help="only events since this time (UTC)",
    )
    parser.add_argument(
        "--to", dest="end", type=_read_time, default=math.inf, metavar="TIME", help="only events before this time (UTC)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
