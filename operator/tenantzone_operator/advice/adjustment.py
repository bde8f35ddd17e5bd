"""One field that is other than its spec says, or was, as a row of the pool's status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal, get_args

State = Literal["Trial", "Kept", "Undone"]
_STATES: Final[tuple[State, ...]] = get_args(State)

MAX_ADJUSTMENTS: Final = 128
"""As in the CRD."""


class Field(StrEnum):
    """What can be changed, by its path in the spec."""

    LIMIT = "limit"
    WEIGHT = "weight"
    TTL = "retention.ttl"
    EVICTION_POLICY = "evictionPolicy"
    WATERMARK = "watermarks.high"
    """The only one of a pool."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What became of one field of one zone. Values are as the spec would have them; empty: nothing is set."""

    zone: str
    """Empty: it is the pool's."""
    field: Field
    spec: str
    """What the spec says. If it says something else one day, the adjustment is over: the user's word counts."""
    value: str
    """What is tried or kept; if it was undone, what was tried last."""
    previous: str
    """What was in force before; empty: what the spec says."""
    state: State
    reason: str
    since: float
    """Unix time, in whole seconds."""
    undone: int = 0
    """How often in succession it was."""
    message: str = ""

    @property
    def key(self) -> tuple[str, Field]:
        return self.zone, self.field

    @property
    def in_force(self) -> str:
        """The value in place of the spec's; empty: none."""
        return self.previous if self.state == "Undone" else self.value

    def row(self) -> dict[str, Any]:
        """As the status has it."""
        fields = {
            "zone": self.zone,
            "field": self.field.value,
            "spec": self.spec,
            "value": self.value,
            "previous": self.previous,
            "state": self.state,
            "reason": self.reason,
            "since": timestamp(self.since),
            "undone": self.undone,
            "message": self.message,
        }
        return {name: value for name, value in fields.items() if value not in ("", 0)}


def read_adjustments(status: Mapping[str, Any]) -> tuple[Adjustment, ...]:
    """Those that a pool's status has. A row that nobody here has written makes no sense, and is passed over."""
    rows = status.get("adjustments")
    return tuple(_read(rows)) if isinstance(rows, list) else ()


def _read(rows: Iterable[Any]) -> Iterable[Adjustment]:
    seen = set()
    for row in rows:
        try:
            found = Adjustment(
                zone=str(row.get("zone", "")),
                field=Field(row["field"]),
                spec=str(row.get("spec", "")),
                value=str(row["value"]),
                previous=str(row.get("previous", "")),
                state=_state(row["state"]),
                reason=str(row.get("reason", "")),
                since=datetime.fromisoformat(row["since"]).timestamp(),
                undone=int(row.get("undone", 0)),
                message=str(row.get("message", "")),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, StopIteration):
            continue
        if found.key not in seen:
            seen.add(found.key)
            yield found


def _state(text: Any) -> State:
    return next(state for state in _STATES if state == text)


def timestamp(unix_time: float) -> str:
    """RFC 3339, in whole seconds."""
    return datetime.fromtimestamp(unix_time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
