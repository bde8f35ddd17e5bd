"""Recordings of the frontend: one file, or the folder with all files.

Lines are in the order in which requests ended. Each gives the arrival time of the oldest request that had not ended
yet, so that arrivals can be sorted without reading ahead further than that.

After a full disk, a killed process or a power failure, a line may be cut off or contain zeros, with the next one behind
it on the same line or on its own. Incomplete lines are skipped with a warning.
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

from tenantzone_replay.load import Asked, TraceError, content_id, first_arrival_at_zero
from tenantzone_replay.readers.lines import count, members, name, number, text_lines
from tenantzone_replay.readers.seen import Seen

_FORMAT = 1
_BEGINNING = '{"recorded":'
_LETTERS = 8
"""The characters of a block's hash."""
_PATTERN = "requests-*.jsonl*"
_NAME: Final = re.compile(r"requests-.+\.jsonl(\.[-0-9]+)?(\.gz)?", re.DOTALL)
"""The names of rotated or archived files; editors and copies use other endings."""
_MOST_UNDER_WAY = 100_000
_MOST_ANSWERS = 16_384
"""The most answers to one prompt; vLLM's own bound."""

Arrival = tuple[float, int, Asked]
"""Unix time, place in the file, and the request, whose arrival is not set yet."""


@dataclass(frozen=True, slots=True, order=True)
class _Part:
    """A file of one process, identified by its first complete line; parts sort in the order of writing.

    Names do not give the order: a packed or moved file keeps its number while later ones are rotated.
    """

    oldest: float
    written: float
    """When that line was written."""
    earliest: float = field(compare=False)
    """No request in this file or in later ones arrived before this time."""
    beginning: int = field(compare=False)
    """An id of that line."""
    path: Path = field(compare=False)


def looks_like(line: str) -> bool:
    """Whether a file with this first line has this format."""
    return line.startswith(_BEGINNING)


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields requests in the order of their arrival.

    Requests that the engine refused are left out: their clients retried. Abandoned requests are included, with the
    number of answer tokens that they got.

    Raises:
        TraceError: a line was not written by a recorder, or there is no recording.
    """
    seen = seen or Seen()
    by_process = _by_process(path, seen) if path.is_dir() else [[path]]
    processes = [sorted(_once(_parts(paths, seen), seen)) for paths in by_process]
    if not processes:
        raise TraceError(f"{path} has no recordings, whose names are as {_PATTERN}")
    first: float | None = None
    for moment, _, asked in heapq.merge(
        *(_when_due(parts, seen) for parts in processes if parts), key=lambda each: each[0]
    ):
        if asked is not None:
            arrival, first = first_arrival_at_zero(moment, first)
            yield asked.at(arrival)


def _by_process(folder: Path, seen: Seen) -> list[list[Path]]:
    """Returns the files of each process that wrote into a folder."""
    by_process: dict[str, list[Path]] = {}
    for path in seen.names(folder, _PATTERN):
        if _NAME.fullmatch(path.name):
            by_process.setdefault(path.name.partition(".jsonl")[0], []).append(path)
        else:
            _say(f"{path}: it is not called as recordings are, and is left out")
    return list(by_process.values())


def _parts(paths: Iterable[Path], seen: Seen) -> Iterator[_Part]:
    """Yields the files that are not empty."""
    for path in paths:
        for where, fields in _whole_lines(path, seen):
            oldest, arrival = number(where, fields, "oldest"), number(where, fields, "time")
            written = arrival + number(where, fields, "seconds", default=0.0)
            yield _Part(oldest, written, min(oldest, arrival), content_id(json.dumps(fields)), path)
            break


def _once(parts: Iterable[_Part], seen: Seen) -> Iterator[_Part]:
    """Yields one of several files that begin alike: no two lines of a process are equal, so the others are copies."""
    by_beginning: dict[int, list[_Part]] = {}
    for part in parts:
        by_beginning.setdefault(part.beginning, []).append(part)
    for alike in by_beginning.values():
        # A file that was copied while it was written has more lines than the copy.
        longest = alike[0] if len(alike) == 1 else max(alike, key=lambda part: _length(part.path, seen))
        yield longest
        for part in alike:
            if part is not longest:
                _say(f"{part.path}: it begins as {longest.path} does, and is left out")


def _length(path: Path, seen: Seen) -> int:
    return sum(1 for _ in _whole_lines(path, seen))


def _when_due(parts: list[_Part], seen: Seen) -> Iterator[tuple[float, int, Asked | None]]:
    # Files are opened only when they may be next: there may be more files than can be open.
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
                    f"{where}: by its lines, more than {_MOST_UNDER_WAY:,} requests were under way at once"
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
                raise TraceError(f"{where}: no JSON: {error}") from None
            cut_off += 1
            fields = _behind_what_was_cut_off(line)
            if fields is None:
                continue
        yield where, members(where, fields)
    if cut_off:
        _say(f"{path}: lines that were cut off, and are left out: {cut_off}")


def _is_cut_off(line: str) -> bool:
    return "\0" in line or _BEGINNING in line or _BEGINNING.startswith(line.rstrip())


def _behind_what_was_cut_off(line: str) -> Any:
    """Returns the complete line at the end of a damaged one; None: there is none."""
    try:
        return json.loads(line[line.rindex(_BEGINNING) :])
    except (ValueError, RecursionError):
        return None


@cache
def _say(text: str) -> None:
    # Once: a load is read several times.
    print(text, file=sys.stderr, flush=True)


def _requests(where: str, fields: Mapping[str, Any]) -> Iterator[Asked]:
    if fields.get("recorded") != _FORMAT:
        raise TraceError(f"{where}: recorded in format {fields.get('recorded')!r}; this version reads {_FORMAT}")
    prompt = count(where, fields, "prompt_tokens", default=0)
    if fields.get("finish") == "error" or not prompt:
        return
    hashes, size = fields.get("hashes", ""), max(1, count(where, fields, "block_tokens"))
    if not isinstance(hashes, str) or len(hashes) % _LETTERS:
        raise TraceError(f"{where}: hashes is no text of {_LETTERS} letters for each block")
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
