"""Tracks writes that the API server refuses permanently, so that they are retried rarely and do not delay others."""

from collections.abc import Collection
from dataclasses import dataclass

RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that the API server has refused permanently."""

    what: object
    """The content of the refused write."""
    at: float
    """Time of the refusal in monotonic seconds."""

    def may_try(self, what: object, now: float) -> bool:
        """Returns True if a write differs from the refused write, or if the refusal is old enough for a retry."""
        return self.what != what or now - self.at >= RETRY_SECONDS

    def retry_seconds(self, now: float) -> float:
        """Returns the seconds until the retry of the refused write."""
        return max(0.0, self.at + RETRY_SECONDS - now)


class Refusals:
    """The last refused write of each object."""

    def __init__(self) -> None:
        self._refused: dict[str, Refusal] = {}

    def note(self, uid: str, what: object, now: float) -> bool:
        """Record that a write to an object was refused, and return whether the refusal is new."""
        known = self._refused.get(uid)
        self._refused[uid] = Refusal(what, now)
        return known is None or known.what != what

    def may_try(self, uid: str, what: object, now: float) -> bool:
        """Returns whether to try a write of an object now; see `Refusal.may_try`."""
        known = self._refused.get(uid)
        return known is None or known.may_try(what, now)

    def keep(self, uids: Collection[str]) -> None:
        """Discard the refusals of all objects other than these."""
        if self._refused:
            self._refused = {uid: known for uid, known in self._refused.items() if uid in uids}

    def done(self, uid: str) -> None:
        """Record that a write to the object succeeded."""
        self._refused.pop(uid, None)

    def retry_seconds(self, now: float) -> float | None:
        """Returns the seconds until the first retry of a refused write; None if no write was refused."""
        return min((known.retry_seconds(now) for known in self._refused.values()), default=None)
