"""Startup hooks of the API server's process. Other packages register hooks, so the frontend need not import them."""

from collections.abc import Callable
from typing import Any

Opener = Callable[[], None]
ServingOpener = Callable[[Any], None]

_openers: list[Opener] = []
_serving_openers: list[ServingOpener] = []


def before_opening(opener: Opener) -> None:
    """Register a function that runs when the frontend is created. Registering it twice has no effect."""
    if opener not in _openers:
        _openers.append(opener)


def open_all() -> None:
    """Run the functions registered with `before_opening`."""
    for opener in _openers:
        opener()


def before_serving(opener: ServingOpener) -> None:
    """Register a function that is called with vLLM's application when the API server starts, before any request."""
    _serving_openers.append(opener)


def open_for_serving(application: Any) -> None:
    """Run the functions registered with `before_serving`.

    Args:
        application: vLLM's ASGI application, whose ``state`` is already set.
    """
    for opener in _serving_openers:
        opener(application)
