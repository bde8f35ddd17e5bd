"""What is to be done in the API server's process before the first request, by parts that the door does not know."""

from collections.abc import Callable
from typing import Any

Opener = Callable[[], None]
ServingOpener = Callable[[Any], None]

_openers: list[Opener] = []
_serving_openers: list[ServingOpener] = []


def before_opening(opener: Opener) -> None:
    """Have something done when the door is made; the same thing once, however often it is said."""
    if opener not in _openers:
        _openers.append(opener)


def open_all() -> None:
    """Do it."""
    for opener in _openers:
        opener()


def before_serving(opener: ServingOpener) -> None:
    """Have something done with vLLM's application when the API server has started, and serves nobody yet."""
    _serving_openers.append(opener)


def open_for_serving(application: Any) -> None:
    """Do it.

    Args:
        application: vLLM's, with its state.
    """
    for opener in _serving_openers:
        opener(application)
