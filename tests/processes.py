"""The processes below another one. Any of them may end while a test looks at them."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil


def descendants(pid: int, method: str) -> Iterator[tuple[psutil.Process, Any]]:
    """Yields each running descendant of a process, with the result of calling ``method`` on it.

    Args:
        pid: the process above them.
        method: the name of a method of ``psutil.Process`` without arguments, such as ``cmdline``.
    """
    for each in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found = getattr(each, method)()
            yield each, found
