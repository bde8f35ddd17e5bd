"""What the front door's recorder wrote: one file of it, or the folder with all of them.

Lines are in the order in which requests ended. Each says since when the oldest one was under way that had not ended
yet, so that arrivals can be put in order without reading ahead further than that.

Where a disk was full or a process was killed, a line may be cut off, with the next one behind it in the same line or in
one of its own. What was cut off is left out, and said.
"""

import heapq
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tenantzone_replay.load import Asked, TraceError, content_id, first_arrival_at_zero
from tenantzone_replay.readers.lines import count, members, name, number, text_lines

_FORMAT = 1
_BEGINNING = '{"recorded":'
_LETTERS = 8
"""Of a block's hash."""
_PATTERN = "requests-*.jsonl*"
_MOST_UNDER_WAY = 100_000
_MOST_ANSWERS = 16_384
"""To one prompt; vLLM's own bound."""

Arrival = tuple[float, int, Asked]
"""Unix time, place in the file, and the request, whose own time is not set."""


def looks_like(line: str) -> bool:
    """Whether a file that begins with this line is one of these."""
    return line.startswith(_BEGINNING)


def files(folder: Path) -> list[list[Path]]:
    """The files of each process that wrote into a folder, the oldest first."""
    by_process: dict[str, list[Path]] = {}
    for path in folder.glob(_PATTERN):
        by_process.setdefault(path.name.partition(".jsonl")[0], []).append(path)
    return [sorted(paths, key=_age, reverse=True) for _, paths in sorted(by_process.items())]


def read(path: Path) -> Iterator[Asked]:
    """Requests in the order of their arrival.

    What the engine refused is left out: its client asked again. What nobody waited for is there, with as many tokens of
    an answer as it had.

    Raises:
        TraceError: a line was written by nobody who records, or nothing is recorded there.
    """
    processes = files(path) if path.is_dir() else [[path]]
    if not processes:
        raise TraceError(f"{path} has no recordings, whose names are as {_PATTERN}")
    first: float | None = None
    for moment, _, asked in heapq.merge(*map(_in_order, processes), key=lambda each: each[0]):
        arrival, first = first_arrival_at_zero(moment, first)
        yield asked.at(arrival)


def _in_order(paths: list[Path]) -> Iterator[Arrival]:
    waiting: list[Arrival] = []
    place = 0
    for path in paths:
        for where, fields in _whole_lines(path):
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


def _whole_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    cut_off = 0
    for line_number, line in text_lines(path):
        where = f"{path}, line {line_number}"
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not _BEGINNING.startswith(line.rstrip()[: len(_BEGINNING)]):
                raise TraceError(f"{where}: no JSON: {error}") from None
            cut_off += 1
        else:
            yield where, members(where, fields)
    if cut_off:
        _say(f"{path}: lines that were cut off, and are left out: {cut_off}")


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


def _age(path: Path) -> int:
    number = path.name.removesuffix(".gz").rpartition(".")[2]
    return int(number) if number.isdecimal() else 0
