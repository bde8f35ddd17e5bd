"""The current knowledge about one engine; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_operator.engines.views import EngineView, TierView, ZoneView


@dataclass(frozen=True, slots=True)
class Observation:
    """The newest report of one ready engine, or why there is none."""

    pod: str
    report: EngineView | None
    error: str = ""
    """Why there is no report."""
    refuses: bool = False
    """Whether there is no report because the engine refuses the operator's tokens."""
    blocks: int | None = None
    """The engine's number of blocks, also while it does not answer; None if it never reported it."""

    @property
    def zones(self) -> Mapping[str, ZoneView]:
        """The declared zones that the engine reports, by name; empty if there is no report."""
        return self.report.zones if self.report is not None else {}

    @property
    def tiers(self) -> Mapping[str, TierView]:
        """The tiers that the engine reports, by name; empty if it has none, or if there is no report."""
        return self.report.tiers if self.report is not None else {}

    @property
    def lag(self) -> str:
        """How an API server process differs from its engine core, in words; empty if no difference is known."""
        return self.report.lag if self.report is not None else ""

    @property
    def nack(self) -> str:
        """Why the engine refuses the newest config, in its own words; empty if it does not."""
        return self.report.nack if self.report is not None else ""

    @property
    def is_untrusted(self) -> bool:
        """Whether the engine refuses a config because of its signature."""
        return self.report is not None and self.report.is_untrusted

    @property
    def newest_generation(self) -> int:
        """The generation of the newest signed config if the engine refuses one for being older; 0 otherwise."""
        return self.report.newest_generation if self.report is not None else 0

    @property
    def has_config(self) -> bool:
        """Whether the engine reports a config in force."""
        return self.report is not None and self.report.applied_hash is not None
