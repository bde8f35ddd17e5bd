"""Limits the repairs of statuses that other clients change, so that two clients do not overwrite each other nonstop."""

from tenantzone_operator.kube.store import View
from tenantzone_operator.status.notices import Status

REPAIR_SECONDS = 10.0
"""Minimum number of seconds between two repairs of a status that other clients keep changing."""


class Repairs:
    """The statuses that were written last, to detect changes by other clients."""

    def __init__(self) -> None:
        self._written: dict[str, Status] = {}
        self._repaired_at: dict[str, float] = {}

    def look(self, view: View) -> None:
        """Forget the statuses of objects that are gone."""
        if len(self._written) > 2 * (len(view.zones) + len(view.leaving) + 1):
            uids = view.uids
            self._written = {uid: status for uid, status in self._written.items() if uid in uids}
            self._repaired_at = {uid: at for uid, at in self._repaired_at.items() if uid in uids}

    def may_write(self, uid: str, status: Status, now: float) -> bool:
        """Returns whether a status that differs from the status at the API server may be written now."""
        if self._written.get(uid) != status:
            return True
        if now - self._repaired_at.get(uid, float("-inf")) < REPAIR_SECONDS:
            return False
        self._repaired_at[uid] = now
        return True

    def note(self, uid: str, status: Status) -> None:
        """Record that a status was written."""
        self._written[uid] = status
