"""Measures what the reasoning parsers take of the engine core, where a structured answer waits for the reasoning's end.

The engine core asks about a prompt once, and about an answer after each step; a parser gets token ids only.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from hack.harness.answer_parsers import ParserName, make_reasoning_parser, markers_of, registered, tokenizer
from hack.progress import say

_TOKENS: Final = 32_768
_PLAIN_TEXT: Final = "a"
_LEAST_SECONDS: Final = 0.001
"""Below this, twice as many tokens say nothing of growth."""
_REPEATS: Final = 3


class Check(NamedTuple):
    """The longest that one check of a parser took."""

    seconds: float
    growth: float
    """How much longer it took than for half the tokens."""


def rows() -> Iterator[str]:
    """Measure all reasoning parsers, and return a line of the table for each."""
    for parser in registered():
        if parser.kind != "reasoning":
            continue
        try:
            reasoner = make_reasoning_parser(parser.name)
            sequences = list(_sequences(parser))
        except (TypeError, ImportError, ValueError) as error:
            why = str(error).splitlines()[0].removesuffix(". Install it with:")
            yield f"| `{parser.name}` | not measured: {why} | |"
            continue
        # The first call of each does the one-time work.
        for check in _checks(reasoner):
            check(sequences[0](_TOKENS))
        cells = [_cell(_longest(check, sequences)) for check in _checks(reasoner)]
        say("parsers", f"reasoning {parser.name}: {' | '.join(cells)}")
        yield f"| `{parser.name}` | {' | '.join(cells)} |"


def _cell(check: Check) -> str:
    return f"{check.seconds * 1000:.1f} ms" + (f", {check.growth:.1f}" if check.seconds > _LEAST_SECONDS else "")


def _checks(reasoner: Any) -> tuple[Callable[[list[int]], Any], Callable[[list[int]], Any]]:
    """Return the check of a prompt, and the checks of an answer after one step, as vLLM makes them."""

    def after_step(ids: list[int]) -> None:
        find = getattr(reasoner, "find_reasoning_end", None)
        if find is not None and getattr(reasoner, "reasoning_end_token_ids", None):
            find(ids[-1:])
        reasoner.is_reasoning_end_streaming(ids, ids[-1:])

    return reasoner.is_reasoning_end, after_step


def _sequences(parser: ParserName) -> Iterator[Callable[[int], list[int]]]:
    """Return what makes a number of hostile token ids: each marker again and again, and between other tokens."""
    encode = partial(tokenizer().encode, add_special_tokens=False)
    (plain,) = encode(_PLAIN_TEXT)
    units = [[plain], *(unit for marker in markers_of(parser) for unit in (encode(marker), [*encode(marker), plain]))]
    for unit in units:
        yield partial(_repeated, unit)
        yield partial(_after, unit, plain)


def _repeated(unit: list[int], count: int) -> list[int]:
    return (unit * count)[:count]


def _after(unit: list[int], plain: int, count: int) -> list[int]:
    return [*unit, *([plain] * count)][:count]


def _longest(check: Callable[[list[int]], Any], sequences: list[Callable[[int], list[int]]]) -> Check:
    found = Check(0.0, 1.0)
    for make in sequences:
        half, whole = _seconds(check, make(_TOKENS // 2)), _seconds(check, make(_TOKENS))
        if whole > found.seconds:
            found = Check(whole, whole / half)
    return found


def _seconds(check: Callable[[list[int]], Any], ids: list[int]) -> float:
    """The processor time of one check, the least of some."""
    taken = []
    for _ in range(_REPEATS):
        begin = time.thread_time()
        check(ids)
        taken.append(time.thread_time() - begin)
    return min(taken)
