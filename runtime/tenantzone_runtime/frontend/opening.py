"""Start-up hooks of the API server's process, for packages that the frontend does not import."""

from collections.abc import Callable
from typing import Any

Opener = Callable[[], None]
ServingOpener = Callable[[Any], None]

_openers: list[Opener] = []
_serving_openers: list[ServingOpener] = []


def before_opening(opener: Opener) -> None:
    """Register a function to run when the frontend is made; a function is registered once."""
    if opener not in _openers:
        _openers.append(opener)


def open_all() -> None:
    """Run the functions of `before_opening`."""
    for opener in _openers:
        opener()


def before_serving(opener: ServingOpener) -> None:
    """Register a function to run with vLLM's application when the API server has started, before its first request."""
    _serving_openers.append(opener)


def open_for_serving(application: Any) -> None:
    """Run the functions of `before_serving`.

    Args:
        application: vLLM's, with its state.
    """
    for opener in _serving_openers:
        opener(application)
