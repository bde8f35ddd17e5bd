"""Compare paged memory with contiguous memory per request, by the concurrent requests and by the needed memory.

All requests wait from the beginning, so that as many requests run as fit into memory. To model contiguous memory, the
scheduler uses blocks that are as long as the longest request, so that each request needs only one block.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tenantzone_replay.commands import arguments
from tenantzone_replay.commands.option_types import whole
from tenantzone_replay.results.tables import columns
from tenantzone_replay.simulation.policies import Policy
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import MAX_BLOCKS, Asked, TraceError

_BLOCK_TOKENS: Final = 16
_SEATS: Final = 4096
"""Maximum number of seats. It is meant to be so large that memory, and not seats, limits the running requests."""
_ALL: Final = 1_000_000
"""Maximum number of requests that are sent at once."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How many requests run at the same time with one kind of memory."""

    what: str
    tokens: int
    """Size of the memory in tokens."""
    at_a_time: float
    """Mean number of running requests while other requests waited."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the load, the engine, and the size of contiguous memory."""
    arguments.add_sources(parser)
    arguments.add_engine(parser)
    # Fixed values for the other options of `setting_of`, because this command only varies memory and seats.
    parser.set_defaults(tenants=1, rule="equal", blocks=1, block_tokens=_BLOCK_TOKENS, seats=1, in_flight=_ALL)
    parser.set_defaults(ttft=math.inf, tpot=math.inf)
    parser.add_argument(
        "--pieces",
        type=whole(),
        default=64,
        help="number of requests that fit into the memory, each in one contiguous piece (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> None:
    """Print a table of the kinds of memory.

    Raises:
        TraceError: the load can't be read, or is too small or too large for the memory.
    """
    setting = arguments.setting_of(options)
    longest = -(-setting.profile.longest // _BLOCK_TOKENS) * _BLOCK_TOKENS
    print(f"the longest request has {setting.profile.longest:,} tokens", file=sys.stderr)
    pages = options.pieces * (longest // _BLOCK_TOKENS)
    if pages > MAX_BLOCKS:
        raise TraceError(
            f"--pieces {options.pieces:,} of {longest:,} tokens need {pages:,} blocks, more than {MAX_BLOCKS:,}; "
            f"lower --pieces"
        )
    contiguous = _fit(setting, "one piece each", longest, options.pieces)
    paged = _fit(setting, f"pages of {_BLOCK_TOKENS} tokens", _BLOCK_TOKENS, pages)
    fits = [contiguous, paged]
    # Find, by bisection, how much paged memory is enough to run as many requests at a time as contiguous memory.
    low, high = 0, pages
    best = paged
    while high - low > max(1, pages // 50):
        middle = (low + high) // 2
        tried = _fit(setting, "pages, for as many at a time", _BLOCK_TOKENS, middle)
        if tried.at_a_time >= contiguous.at_a_time:
            high, best = middle, tried
        else:
            low = middle
    fits.append(replace(best, what="pages, for as many at a time"))
    rows: list[Sequence[str]] = [("memory", "tokens", "of the first", "requests at a time", "times the first")]
    for fit in fits:
        rows.append(
            (
                fit.what,
                f"{fit.tokens:,}",
                f"{fit.tokens / contiguous.tokens:.0%}",
                f"{fit.at_a_time:.0f}",
                f"{fit.at_a_time / contiguous.at_a_time:.1f}",
            )
        )
    print(columns(rows))


def _fit(setting: Setting, what: str, block_tokens: int, blocks: int) -> Fit:
    from tenantzone_replay.simulation.replay import replay

    if blocks * block_tokens < setting.profile.longest:
        return Fit(what, blocks * block_tokens, 0.0)
    seats = min(_SEATS, setting.shape.step_tokens)  # A step can't run more requests than it has tokens.
    shape = replace(setting.shape, blocks=blocks, block_tokens=block_tokens, seats=seats)
    # Make each request's text unique, because shared prefixes must not affect the result.
    alone = replace(setting, shape=shape, load=lambda: (_alone(asked) for asked in setting.load()))
    result = replay(alone, Policy("stock", "vLLM"))
    if not result.at_a_time:
        raise TraceError(
            f"all requests fit into the memory at once ({what}); use a load with more requests, or lower --pieces"
        )
    print(f"  {what}, {blocks:,} blocks: in {result.took_seconds:.1f} s", file=sys.stderr, flush=True)
    return Fit(what, blocks * block_tokens, result.at_a_time)


def _alone(asked: Asked) -> Asked:
    return replace(asked, content=(), known_tokens=0)
