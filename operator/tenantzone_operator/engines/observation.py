"""What is known of one engine now; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_operator.engines.views import EngineView, TierView, ZoneView


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one ready engine: its newest report, or why there is none."""

    pod: str
    report: EngineView | None
    error: str = ""
    """Why there is no report."""
    refuses: bool = False
    """Whether there is none because it refuses the operator's tokens."""
    blocks: int | None = None
    """The engine's size, even if it does not answer now; None: it never told."""

    @property
    def zones(self) -> Mapping[str, ZoneView]:
        """The declared zones that the engine reports, by name; empty if there is no report."""
        return self.report.zones if self.report is not None else {}

    @property
    def tiers(self) -> Mapping[str, TierView]:
        """The tiers that the engine reports, by name; empty if it has none, or there is no report."""
        return self.report.tiers if self.report is not None else {}

    @property
    def lag(self) -> str:
        """In what an API server process differs from its engine core, in words; empty: in nothing that is known."""
        return self.report.lag if self.report is not None else ""

    @property
    def nack(self) -> str:
        """Why the engine refuses the newest config, in its own words; empty if it does not."""
        return self.report.nack if self.report is not None else ""

    @property
    def is_untrusted(self) -> bool:
        """Whether the engine refuses a config because of its signature."""
        return self.report is not None and self.report.is_untrusted
