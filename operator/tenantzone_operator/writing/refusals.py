"""Tracks writes that the API server refuses permanently, so that each is retried rarely without delaying others."""

from collections.abc import Collection
from typing import Any

RETRY_SECONDS = 10.0


class Refusals:
    """The writes that the API server has refused permanently, by object."""

    def __init__(self) -> None:
        self._refused: dict[str, tuple[Any, float]] = {}

    def note(self, uid: str, what: object, now: float) -> bool:
        """Record that a write to an object was refused, and return whether the refusal is new."""
        known = self._refused.get(uid)
        self._refused[uid] = what, now
        return known is None or known[0] != what

    def may_try(self, uid: str, what: object, now: float) -> bool:
        """Returns whether to try a write now, because it differs from the refused write, or the refusal is old."""
        known = self._refused.get(uid)
        return known is None or known[0] != what or now - known[1] >= RETRY_SECONDS

    def keep(self, uids: Collection[str]) -> None:
        """Forget the refusals of all objects except for these."""
        if self._refused:
            self._refused = {uid: known for uid, known in self._refused.items() if uid in uids}

    def done(self, uid: str) -> None:
        """Record that a write to the object succeeded."""
        self._refused.pop(uid, None)

    def retry_seconds(self, now: float) -> float | None:
        """Returns the seconds until the retry of a refused write; None if no write was refused."""
        times = [max(0.0, at + RETRY_SECONDS - now) for _, at in self._refused.values()]
        return min(times, default=None)
