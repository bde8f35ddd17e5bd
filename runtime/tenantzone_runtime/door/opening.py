"""What is to be done in the API server's process before the first request, by parts that the door does not know."""

from collections.abc import Callable

Opener = Callable[[], None]

_openers: list[Opener] = []


def before_opening(opener: Opener) -> None:
    """Have something done when the door is made; the same thing once, however often it is said."""
    if opener not in _openers:
        _openers.append(opener)


def open_all() -> None:
    """Do it."""
    for opener in _openers:
        opener()
