"""Writes docs/parsers.md: how the time of each of vLLM's answer parsers grows with a hostile answer.

It measures each parser in a process of its own, for about 15 minutes in all. Run it after a change of vLLM's version:
make parsers-page
"""

import gc
import logging
import math
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from string import Template
from typing import Any, Final, NamedTuple

from hack.generate.parsers_checks import rows as checks
from hack.harness.answer_parsers import (
    ParserName,
    chat_request,
    deltas,
    make_parser,
    markers_of,
    parse_stream,
    parse_whole,
    parser_class,
    registered,
    tokenizer,
    vllm_version,
)
from hack.progress import say
from tenantzone_runtime.engine.patches.parsers.interruption import TimeSpentError, prepare_interruption, run_for

PAGE: Final = Path(__file__).parents[2] / "docs" / "parsers.md"
_SIZES: Final = (250, 500, 1000, 2000, 4000)
"""How often the hostile part of an answer is repeated."""
_BODIES: Final = ('{"name":"a","arguments":{', '{"a":', "{", "[", " ", "\n", '"', "\\", "<", "a(", "a=", "[a()]", "</a")
_CASE_SECONDS: Final = 1.0
_PARSER_SECONDS: Final = 6.0
"""The time for one parser's complete answers, and again for its streams."""
_LEAST_SECONDS: Final = 0.004
"""Below this, one more doubling says nothing of growth."""
_LONG_SECONDS: Final = 0.2
"""Above this, another doubling would show nothing new."""
_LINEAR: Final = 1.4
"""Up to this, the exponent of what grows in proportion, as far as measurements are precise."""
_MODES: Final = ("whole", "stream")

_PAGE = Template("""\
# Growth of vLLM's answer parsers

<!-- Written by `make parsers-page` from measurements. Do not edit by hand. -->

vLLM's tool and reasoning parsers (`--tool-call-parser`, `--reasoning-parser`) read each answer on the API server's
event loop. Each parser of vLLM $version was measured with hostile answers: its own markers, and repeated brackets,
spaces and quotes, once as a whole and once as a stream of single tokens. A row shows the answer that would take longest
with 10,000 repetitions.

The growth is the exponent with which the time grows with an answer's length: 1 is linear, 2 quadratic, 3 cubic. The
time is that of one core for the given number of repetitions; `>` means that the parser was stopped. `-` means that each
answer took at most $least ms, or time in proportion to its length.

[The frontend](frontend.md#answers) limits the time of each parser.

| parser | whole: growth | time | answer | stream: growth | time | answer |
|---|---|---|---|---|---|---|
$rows

## In the engine core

With structured answers (`structured_outputs`, `response_format`, required tools) and a reasoning parser, the engine
core asks that parser whether the reasoning has ended: once for the prompt, and after each step for the answer. The
parser gets token ids. The table shows the longest check of 32,768 hostile token ids: each of the parser's markers,
repeated alone, repeated with other tokens between, and once before other tokens. If a check takes more than 1 ms, the
second number is the ratio to the time for half as many ids; 2 means linear growth. The machine was busy: most ratios of
3 or more were about 2 in another run. Nothing limits these checks.

| reasoning parser | prompt | one step |
|---|---|---|
$checks
""")


class Case(NamedTuple):
    """The answer that took a parser longest."""

    growth: float
    seconds: float
    repetitions: int
    is_stopped: bool
    form: str


class _Form(NamedTuple):
    """A form of hostile answers."""

    head: str
    body: str
    tail: str = ""

    def answer(self, repetitions: int) -> str:
        """Return the answer with the body repeated ``repetitions`` times."""
        return self.head + self.body * repetitions + self.tail

    def __str__(self) -> str:
        parts = (repr(self.head) if self.head else "", f"{self.body!r}*n", repr(self.tail) if self.tail else "")
        return " + ".join(filter(None, parts))


def rows() -> Iterator[str]:
    """Measure all parsers, and return a line of the table for each."""
    known: dict[Any, tuple[str, ...]] = {}
    for parser in registered():
        try:
            class_ = parser_class(parser)
            make_parser(parser)
        except (TypeError, ImportError) as error:
            why = str(error).splitlines()[0].removesuffix(". Install it with:")
            yield _line(parser, (f"not measured: {why}", *[""] * 5))
            continue
        part = class_.tool_parser_cls if parser.kind == "tool" else class_.reasoning_parser_cls
        if part not in known:
            known[part] = tuple(cell for mode in _MODES for cell in _cells(_in_child(parser, mode)))
            say("parsers", f"{parser.kind} {parser.name}: {' | '.join(known[part])}")
        yield _line(parser, known[part])


def _line(parser: ParserName, cells: tuple[str, ...]) -> str:
    return f"| {parser.kind} `{parser.name}` | {' | '.join(cells)} |"


def _cells(case: Case | None) -> tuple[str, str, str]:
    if case is None:
        return ("-", "", "")
    mark = "> " if case.is_stopped else ""
    time_of_it = f"{mark}{case.seconds * 1000:,.0f} ms for {case.repetitions:,}"
    return (f"{mark}{case.growth:.1f}", time_of_it, f"`{case.form.replace('|', chr(92) + '|')}`")


def _in_child(parser: ParserName, mode: str) -> Case | None:
    """Measure one parser in a process that is killed if a parser can't be interrupted."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(parser, mode, theirs))
    child.start()
    case: Case | None = None
    try:
        while ours.poll(30 * _PARSER_SECONDS):
            found = ours.recv()
            if found is None:
                break
            case = found
    finally:
        child.kill()
        child.join()
    return case


def _measure(parser: ParserName, mode: str, pipe: Connection) -> None:
    logging.disable(logging.CRITICAL)
    prepare_interruption()
    # A collection looks at all that vLLM has imported, which no parser is at fault for.
    gc.collect()
    gc.disable()
    _time_of(parser, mode, "{}" * _SIZES[0])
    begin = time.process_time()
    longest: Case | None = None
    for form in _forms(markers_of(parser)):
        case = _case(parser, mode, form)
        if case is not None and (longest is None or _rank(case) > _rank(longest)):
            longest = case
            pipe.send(longest)
        if time.process_time() - begin > _PARSER_SECONDS:
            break
    pipe.send(None)


def _rank(case: Case) -> float:
    """Returns the time of ten thousand repetitions, by a case's own growth."""
    return case.seconds * math.pow(10_000 / case.repetitions, case.growth)


def _case(parser: ParserName, mode: str, form: _Form) -> Case | None:
    """Time one form of an answer at growing lengths; None if its time grows in proportion, or is short."""
    before = growth = 0.0
    for size in _SIZES:
        took, is_stopped = _time_of(parser, mode, form.answer(size))
        if before:
            growth = math.log2(took / before)
        is_long = took > _LONG_SECONDS and growth > 0
        if is_stopped or is_long or size == _SIZES[-1] or (before and (took < _LEAST_SECONDS or growth < _LINEAR)):
            return (
                Case(growth, took, size, is_stopped, str(form)) if growth > _LINEAR and took > _LEAST_SECONDS else None
            )
        before = took
    return None


def _time_of(parser: ParserName, mode: str, text: str) -> tuple[float, bool]:
    """The seconds that a parser takes for an answer, and whether it was stopped."""
    made, request = make_parser(parser), chat_request(stream=mode == "stream")
    pieces = list(deltas(text, markers_of(parser))) if mode == "stream" else []
    call = (
        partial(parse_stream, made, pieces, request) if mode == "stream" else partial(parse_whole, made, text, request)
    )
    begin = time.thread_time()
    is_stopped = False
    try:
        run_for(_CASE_SECONDS, call)
    except TimeSpentError:
        is_stopped = True
    except Exception as error:
        # vLLM answers such a text with an error, or as it is.
        logging.debug("a parser has failed", exc_info=error)
    return time.thread_time() - begin, is_stopped


def _forms(markers: list[str]) -> Iterator[_Form]:
    """Return the forms of hostile answers for a parser that looks for these markers."""
    ends = [marker for marker in markers if marker.startswith("</") or "end" in marker]
    head, tail = next(iter(markers), ""), next(iter(ends), "")
    for body in _BODIES:
        yield _Form(head, body)
    for marker in markers[:8]:
        yield _Form("", marker)
        yield _Form(marker, " ")
    yield _Form(head, " ", "<a>" + tail)
    for marker in markers[1:6]:
        yield _Form("", head + marker)
        yield _Form(head + "a", marker, tail)
    for body in _BODIES:
        yield _Form("", body)
        yield _Form(head, body, tail)


def page(lines: Iterable[str], lines_of_checks: Iterable[str]) -> str:
    """Return the page's content with these lines of its tables."""
    return _PAGE.substitute(
        version=vllm_version(),
        least=f"{_LEAST_SECONDS * 1000:g}",
        rows="\n".join(lines),
        checks="\n".join(lines_of_checks),
    )


if __name__ == "__main__":
    tokenizer()
    PAGE.write_text(page(rows(), checks()))
