"""Shows a text that is updated repeatedly, on a terminal or in a pipe."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

_HOME = "\033[H"
_CLEAR_LINE = "\033[K"
_CLEAR_BELOW = "\033[J"


def watch(make: Callable[[], Sequence[str]], interval: float) -> NoReturn:
    """Show an updated text every ``interval`` seconds, until the process is interrupted.

    On a terminal, each text replaces the previous text. Lines that do not fit are left out, so that the terminal does
    not scroll.

    Args:
        make: returns the lines of the text.
        interval: the time between two texts, in seconds.
    """
    is_terminal = sys.stdout.isatty()
    while True:
        lines = make()
        sys.stdout.write(screen(lines, shutil.get_terminal_size()) if is_terminal else "\n".join([*lines, ""]))
        sys.stdout.flush()
        time.sleep(interval)


def screen(lines: Sequence[str], size: tuple[int, int]) -> str:
    """Returns the characters to write so that a terminal of this size (columns, rows) shows exactly these lines."""
    columns, rows = size
    if len(lines) > rows - 1:
        hidden = len(lines) - (rows - 2)
        lines = [*lines[: rows - 2], f"... {hidden} more lines; enlarge the window, or use --pool or --sort-by"]
    return _HOME + "".join(f"{line[:columns]}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW
