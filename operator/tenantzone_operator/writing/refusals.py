"""Writes that the API server refuses for good: each is tried again by itself, slowly, and delays nothing else. Pure."""

from collections.abc import Collection
from typing import Any

RETRY_SECONDS = 10.0


class Refusals:
    """What was refused, by object."""

    def __init__(self) -> None:
        self._refused: dict[str, tuple[Any, float]] = {}

    def note(self, uid: str, what: object, now: float) -> bool:
        """Writing this to an object was refused. Returns whether it is news."""
        known = self._refused.get(uid)
        self._refused[uid] = what, now
        return known is None or known[0] != what

    def may_try(self, uid: str, what: object, now: float) -> bool:
        """Whether to write this to an object now: it is something else than was refused, or that was long ago."""
        known = self._refused.get(uid)
        return known is None or known[0] != what or now - known[1] >= RETRY_SECONDS

    def keep(self, uids: Collection[str]) -> None:
        """Forget all but these objects."""
        if self._refused:
            self._refused = {uid: known for uid, known in self._refused.items() if uid in uids}

    def done(self, uid: str) -> None:
        """It was written."""
        self._refused.pop(uid, None)

    def retry_seconds(self, now: float) -> float | None:
        """After which something is to be tried again; None: nothing was refused."""
        times = [max(0.0, at + RETRY_SECONDS - now) for _, at in self._refused.values()]
        return min(times, default=None)
