"""Models what the operator knows about one engine now."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_operator.engines.views import EngineView, TierView, ZoneView


@dataclass(frozen=True, slots=True)
class Observation:
    """The newest report of one ready engine, or the reason why no report is available."""

    pod: str
    report: EngineView | None
    error: str = ""
    """Why no report is available; empty if a report is available."""
    refuses: bool = False
    """Whether no report is available because the engine refuses the operator's tokens."""
    blocks: int | None = None
    """The engine's size in blocks in its last report; None if the engine has never sent a report."""

    @property
    def zones(self) -> Mapping[str, ZoneView]:
        """Declared zones that the engine reports, by name; empty without a report."""
        return self.report.zones if self.report is not None else {}

    @property
    def tiers(self) -> Mapping[str, TierView]:
        """Tiers that the engine reports, by name; empty if the engine has no tiers or there is no report."""
        return self.report.tiers if self.report is not None else {}

    @property
    def lag(self) -> str:
        """Text that says how an API server process differs from its engine core; empty if no difference is known."""
        return self.report.lag if self.report is not None else ""

    @property
    def nack(self) -> str:
        """Why the engine refuses the newest config, in the engine's words; empty if it does not refuse."""
        return self.report.nack if self.report is not None else ""

    @property
    def is_untrusted(self) -> bool:
        """Whether the engine refuses a config because of an invalid signature, or because it has a newer config."""
        return self.report is not None and self.report.is_untrusted

    @property
    def newest_generation(self) -> int:
        """Generation of the newest config that the engine knows, if it refuses an older config; 0 otherwise."""
        return self.report.newest_generation if self.report is not None else 0

    @property
    def has_config(self) -> bool:
        """Whether the engine reports a config in force."""
        return self.report is not None and self.report.applied_hash is not None
