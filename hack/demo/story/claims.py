"""The demo's claims, their outcomes, and the resulting exit code."""

from dataclasses import dataclass, field

from hack.demo.console import chapter, say, table


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the demo, the measurement for it, and whether it held."""

    step: str
    text: str
    measured: str
    held: bool

    @property
    def outcome(self) -> str:
        return "held" if self.held else "FAILED"


@dataclass(slots=True)
class Claims:
    """Collects claims during the demo."""

    made: list[Claim] = field(default_factory=list)

    def check(self, step: str, text: str, measured: str, *, held: bool) -> None:
        claim = Claim(step, text, measured, held)
        self.made.append(claim)
        say(f"  {'✔' if held else '✘'} {text}: {measured}")

    @property
    def exit_code(self) -> int:
        """Exit code, which is 0 only if claims were made and all of them held."""
        return 0 if self.made and all(claim.held for claim in self.made) else 1

    def summarize(self) -> None:
        chapter("Summary")
        table(
            ("", "claim", "measured", "outcome"),
            [(claim.step, claim.text, claim.measured, claim.outcome) for claim in self.made],
        )
