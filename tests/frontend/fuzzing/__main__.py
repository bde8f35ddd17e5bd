"""Fuzzes the frontend of a real engine over HTTP with random requests, valid and malformed, on all routes.

    python -m tests.frontend.fuzzing --seconds 300 --seed 7
    python -m tests.frontend.fuzzing --replay build/fuzzing/7.12.301.http

`make test-deep` runs the first command. The exit code is 1 if a request hangs, if the server fails at one, reveals
internals, prints a traceback or keeps resources afterwards, or if our code blocks the event loop for more than 10 ms of
processor time at once. Each such request is written to a file that can be sent again.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figures import percentile
from tests.frontend.fuzzing.client import send
from tests.frontend.fuzzing.drawn import Sending
from tests.frontend.fuzzing.fuzz import CLIENTS, MAX_CALLBACK_SECONDS, Result, fuzz
from tests.frontend.fuzzing.server import Fuzzed, fuzzed_engine

_FOLDER = Path("build/fuzzing")
_SHOWN = 20
"""The most violations, and tracebacks, to show."""


def main() -> None:
    """Starts an engine, fuzzes it with each seed, and prints the findings."""
    options = _options()
    with fuzzed_engine() as fuzzed:
        if options.replay:
            _replay(fuzzed, options.replay)
            return
        seeds = options.seed or [random.randrange(2**32)]
        results = []
        for seed in seeds:
            results.append(fuzz(fuzzed, seed, options.seconds))
            print(report(results[-1]), flush=True)
    sys.exit(not all(result.is_good for result in results))


def report(result: Result) -> str:
    """The findings of a run, with a file for each request at which something went wrong."""
    seen, health = result.seen, sorted(result.health_seconds)
    lines = [
        f"seed {result.seed}: {seen.statuses.total():,} requests by {CLIENTS} clients",
        "  statuses: " + ", ".join(f"{status or 'closed'} {count:,}" for status, count in seen.statuses.most_common()),
        f"  /health: p50 {_milliseconds(percentile(health, 50))}, p99 {_milliseconds(percentile(health, 99))}, "
        f"of {len(health):,}",
        f"  our longest callbacks on the event loop, of at most {_milliseconds(MAX_CALLBACK_SECONDS)} of CPU time:",
        *(f"    {_milliseconds(seconds)}: {what}" for seconds, what in result.longest),
        *_shown_check(result),
        *(f"  grown: {each}" for each in result.grown),
        f"  tracebacks: {len(result.tracebacks)}",
        *result.tracebacks[:_SHOWN],
        f"  violations: {len(seen.violations)}",
        *(f"  {each.what}\n    {_kept(each.sending)}" for each in seen.violations[:_SHOWN]),
        "  good" if result.is_good else "  NOT good",
    ]
    return "\n".join(lines)


def _shown_check(result: Result) -> Iterator[str]:
    """Shows the longest check of a body, and writes the body to a file."""
    check = result.longest_check
    if check is None:
        return
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path = _FOLDER / f"{result.seed}.longest-check.json"
    path.write_bytes(check.body.encode("latin-1"))
    yield (
        f"  the longest check of a body in a worker thread: {_milliseconds(check.seconds)} for "
        f"{len(check.body):,} bytes to {check.path}, parsed as JSON in {_milliseconds(check.parsing_seconds)}"
    )
    yield f"    {path}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _kept(sending: Sending) -> Path:
    """Writes a request to a file, from which it can be sent again."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path = _FOLDER / f"{sending.number}.http"
    path.write_bytes(sending.request)
    return path


def _replay(fuzzed: Fuzzed, paths: Sequence[Path]) -> None:
    for path in paths:
        reply = asyncio.run(send(fuzzed.host, fuzzed.port, Sending(path.stem, (path.read_bytes(),))))
        print(f"{path}: {reply.status} {reply.body[:2000]!r}")
    for traceback in fuzzed.new_tracebacks():
        print(traceback)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.frontend.fuzzing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="with each seed (default: %(default)s)")
    parser.add_argument("--seed", type=int, nargs="*", help="of what is drawn; several: one after the other")
    parser.add_argument("--replay", type=Path, nargs="*", metavar="FILE", help="send these requests, and no others")
    return parser.parse_args()


if __name__ == "__main__":
    main()
