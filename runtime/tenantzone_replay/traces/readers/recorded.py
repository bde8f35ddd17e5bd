"""Reads recordings of the frontend, from one file or from a folder with all files.

Lines are in the order in which requests ended. Each line also contains the arrival time of the oldest request that was
still in flight. All requests that arrived before that time are on this line or on earlier lines, so the reader can sort
them by arrival.

If the disk is full, a process is killed or power fails, a line may be truncated or contain NUL bytes, and the next line
may follow without a line break. Incomplete lines are skipped with a warning.
"""

import heapq
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tenantzone_replay.traces.load import Asked, TraceError, content_id, first_arrival_at_zero
from tenantzone_replay.traces.readers.lines import count, members, name, number, text_lines
from tenantzone_replay.traces.readers.seen import Seen

_FORMAT = 1
_BEGINNING = '{"recorded":'
_LETTERS = 8
"""Number of characters of a block's hash."""
_PATTERN = "requests-*.jsonl*"
_NAME: Final = re.compile(r"requests-.+\.jsonl(\.[-0-9]+)?(\.gz)?", re.DOTALL)
"""Pattern for the names of recordings. Matches rotated and compressed files, but no backups or other copies."""
_MOST_UNDER_WAY = 100_000
_MOST_ANSWERS = 16_384
"""Maximum number of answers to one prompt, which is also vLLM's limit."""

Arrival = tuple[float, int, Asked]
"""Unix time of arrival, position in the recording, and the request. The request's ``arrival`` is not set yet."""


@dataclass(frozen=True, slots=True, order=True)
class _Part:
    """A file of one process, identified by its first complete line. Parts are ordered by the time of writing.

    File names do not show the order, because a compressed or moved file keeps its number when later files are rotated.
    """

    oldest: float
    written: float
    """Time at which the first complete line was written."""
    earliest: float = field(compare=False)
    """Lower bound on the arrival times of the requests in this file and in later files."""
    beginning: int = field(compare=False)
    """Hash of the first complete line."""
    path: Path = field(compare=False)


def looks_like(line: str) -> bool:
    """Returns whether a file with this first line has this format."""
    return line.startswith(_BEGINNING)


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields requests in the order of arrival.

    Refused requests are skipped, because their clients retried them. Requests whose clients disconnected are included,
    with the number of answer tokens that the engine had generated.

    Raises:
        TraceError: a line is not a recorded request, or the folder has no recordings.
    """
    seen = seen or Seen()
    by_process = _by_process(path, seen) if path.is_dir() else [[path]]
    processes = [sorted(_once(_parts(paths, seen), seen)) for paths in by_process]
    if not processes:
        raise TraceError(f"{path} contains no recordings: no file name matches {_PATTERN}")
    first: float | None = None
    for moment, _, asked in heapq.merge(
        *(_when_due(parts, seen) for parts in processes if parts), key=lambda each: each[0]
    ):
        if asked is not None:
            arrival, first = first_arrival_at_zero(moment, first)
            yield asked.at(arrival)


def _by_process(folder: Path, seen: Seen) -> list[list[Path]]:
    """Returns the recordings in a folder, grouped by the process that wrote them."""
    by_process: dict[str, list[Path]] = {}
    for path in seen.names(folder, _PATTERN):
        if _NAME.fullmatch(path.name):
            by_process.setdefault(path.name.partition(".jsonl")[0], []).append(path)
        else:
            _say(f"{path}: skipped, because the file does not have the name of a recording")
    return list(by_process.values())


def _parts(paths: Iterable[Path], seen: Seen) -> Iterator[_Part]:
    """Yields the files that have a complete line."""
    for path in paths:
        for where, fields in _whole_lines(path, seen):
            oldest, arrival = number(where, fields, "oldest"), number(where, fields, "time")
            written = arrival + number(where, fields, "seconds", default=0.0)
            yield _Part(oldest, written, min(oldest, arrival), content_id(json.dumps(fields)), path)
            break


def _once(parts: Iterable[_Part], seen: Seen) -> Iterator[_Part]:
    """Selects the longest of several files with the same first line.

    The other files are copies of that file, because a process writes no line twice.
    """
    by_beginning: dict[int, list[_Part]] = {}
    for part in parts:
        by_beginning.setdefault(part.beginning, []).append(part)
    for alike in by_beginning.values():
        # The longest file is the original, because a file may have been copied while it was still being written.
        longest = alike[0] if len(alike) == 1 else max(alike, key=lambda part: _length(part.path, seen))
        yield longest
        for part in alike:
            if part is not longest:
                _say(f"{part.path}: skipped, because it is a copy of {longest.path}")


def _length(path: Path, seen: Seen) -> int:
    return sum(1 for _ in _whole_lines(path, seen))


def _when_due(parts: list[_Part], seen: Seen) -> Iterator[tuple[float, int, Asked | None]]:
    # The first item contains no request. It makes the merge open this process's files only when it reaches their time,
    # because the files of all processes together may exceed the limit on open files.
    yield parts[0].earliest, 0, None
    yield from _in_order(parts, seen)


def _in_order(parts: list[_Part], seen: Seen) -> Iterator[Arrival]:
    waiting: list[Arrival] = []
    place = 0
    for part in parts:
        for where, fields in _whole_lines(part.path, seen):
            oldest = number(where, fields, "oldest")
            for asked in _requests(where, fields):
                place += 1
                heapq.heappush(waiting, (number(where, fields, "time"), place, asked))
            while waiting and waiting[0][0] <= oldest:
                yield heapq.heappop(waiting)
            if len(waiting) > _MOST_UNDER_WAY:
                raise TraceError(
                    f"{where}: the file is not a valid recording, because its lines state that more than "
                    f"{_MOST_UNDER_WAY:,} requests were in flight at once; leave the file out"
                )
    while waiting:
        yield heapq.heappop(waiting)


def _whole_lines(path: Path, seen: Seen) -> Iterator[tuple[str, Mapping[str, Any]]]:
    cut_off = 0
    for line_number, line in text_lines(path, seen):
        where = f"{path}, line {line_number}"
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not _is_cut_off(line):
                raise TraceError(f"{where}: invalid JSON: {error}") from None
            cut_off += 1
            fields = _behind_what_was_cut_off(line)
            if fields is None:
                continue
        yield where, members(where, fields)
    if cut_off:
        _say(f"{path}: skipped truncated lines: {cut_off}")


def _is_cut_off(line: str) -> bool:
    return "\0" in line or _BEGINNING in line or _BEGINNING.startswith(line.rstrip())


def _behind_what_was_cut_off(line: str) -> Any:
    """Returns the parsed record that follows a truncated record on the same line, or None if no record is complete."""
    try:
        return json.loads(line[line.rindex(_BEGINNING) :])
    except (ValueError, RecursionError):
        return None


@cache
def _say(text: str) -> None:
    # Cached, so that each message is printed only once, although a load is read several times.
    print(text, file=sys.stderr, flush=True)


def _requests(where: str, fields: Mapping[str, Any]) -> Iterator[Asked]:
    if fields.get("recorded") != _FORMAT:
        raise TraceError(
            f"{where}: recorded in format {fields.get('recorded')!r}, but this version reads format {_FORMAT}; use the "
            "version that recorded the file"
        )
    prompt = count(where, fields, "prompt_tokens", default=0)
    if fields.get("finish") == "error" or not prompt:
        return
    hashes, size = fields.get("hashes", ""), max(1, count(where, fields, "block_tokens"))
    if not isinstance(hashes, str) or len(hashes) % _LETTERS:
        raise TraceError(f"{where}: hashes must be text with {_LETTERS} characters per block")
    content = tuple(content_id(hashes[at : at + _LETTERS]) for at in range(0, len(hashes), _LETTERS))
    caller = name(fields, "caller")
    asked = Asked(
        arrival=0.0,
        prompt_tokens=prompt,
        output_tokens=max(1, count(where, fields, "output_tokens", default=1)),
        content=content,
        content_tokens=size,
        known_tokens=len(content) * size,
        conversation=content[0] if content else content_id(where),
        tenant=name(fields, "tenant") or (f"caller-{caller}" if caller else ""),
    )
    for _ in range(max(1, count(where, fields, "answers", default=1, most=_MOST_ANSWERS))):
        yield asked
