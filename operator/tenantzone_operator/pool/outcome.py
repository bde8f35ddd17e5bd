"""The outcome of a pool's last reconcile, from which the operator computes metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.status.acknowledgement import History

EngineState = Literal["acknowledged", "pending", "rejected", "unreachable"]


@dataclass(frozen=True, slots=True)
class EngineOutcome:
    """The state of one engine: whether it enforces the newest config snapshot, and which generation it has applied."""

    pod: str
    state: EngineState
    generation: int | None
    """Generation of the config that the engine has applied; None if the engine has no config or does not answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The statuses of one pool and its zones, and the states of its engines."""

    zones: Mapping[str, Mapping[str, Any]]
    """Statuses of the zones, by zone name."""
    pool: Mapping[str, Any] | None
    """Status of the pool; None if the pool does not exist."""
    engines: tuple[EngineOutcome, ...]
    """States of the ready engines."""


def engine_outcomes(
    observations: Iterable[Observation], history: History, not_written: str
) -> tuple[EngineOutcome, ...]:
    """Returns the state of each ready engine of a pool.

    Args:
        observations: one observation for each ready engine of the pool.
        history: the published snapshots.
        not_written: why the newest snapshot could not be published; empty if it was published.
    """
    return tuple(
        EngineOutcome(
            seen.pod,
            _state(seen, history, not_written),
            seen.report.applied_generation if seen.report is not None else None,
        )
        for seen in observations
    )


def _state(seen: Observation, history: History, not_written: str) -> EngineState:
    if seen.report is None:
        return "unreachable"
    if seen.nack:
        return "rejected"
    return "acknowledged" if not not_written and history.acknowledges_newest(seen.report) else "pending"
