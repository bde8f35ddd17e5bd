"""Models an adjustment in a pool's status: the advisor's change of a field to a value other than the spec's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal, get_args

State = Literal["Trial", "Kept", "Undone"]
_STATES: Final[tuple[State, ...]] = get_args(State)

MAX_ADJUSTMENTS: Final = 128
"""Maximum number of adjustments in a status, as in the CRD."""


class Field(StrEnum):
    """Fields that the advisor can change, as paths in the spec."""

    LIMIT = "limit"
    WEIGHT = "weight"
    TTL = "retention.ttl"
    EVICTION_POLICY = "evictionPolicy"
    WATERMARK = "watermarks.high"
    """The only adjustable field of a pool. All other adjustable fields belong to zones."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The last change of one field of a zone or pool. Values are written as in the spec; an empty value means unset."""

    zone: str
    """Name of the zone; empty if the field belongs to the pool."""
    field: Field
    spec: str
    """Value in the spec. If the user changes the spec, the adjustment ends, because the user's value has precedence."""
    value: str
    """Value that the advisor has set: on trial, kept, or undone, depending on ``state``."""
    previous: str
    """Value in force before the change; empty if that was the spec's value."""
    state: State
    reason: str
    since: float
    """Unix time at which the state began, in whole seconds."""
    undone: int = 0
    """Number of consecutive trials of this field that were undone."""
    message: str = ""

    @property
    def key(self) -> tuple[str, Field]:
        return self.zone, self.field

    @property
    def in_force(self) -> str:
        """Value that the engines should use instead of the spec's value; empty to use the spec's value."""
        return self.previous if self.state == "Undone" else self.value

    def row(self) -> dict[str, Any]:
        """Returns the adjustment as a row of the status."""
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
    """Returns the adjustments in a pool's status, and skips rows that this operator can't parse."""
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
    """Format a Unix time as RFC 3339, in whole seconds."""
    return datetime.fromtimestamp(unix_time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
