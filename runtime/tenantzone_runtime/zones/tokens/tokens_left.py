"""The prompt tokens that are left in a step, by who may still compute them."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Self

from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tokens.deficits import CHUNK


@dataclass(slots=True)
class TokensLeft:
    """The prompt tokens that are left in a step. A copy shows what would be left after tokens are let go of."""

    of_zone: dict[Zone, int] = field(default_factory=dict)
    """Number of prompt tokens that each zone may still compute."""
    unclaimed: int = 0
    """Number of prompt tokens that any zone may still compute, because the zones they are owed to can't use them."""
    spare: int = 0
    """Number of prompt tokens that any zone may still compute and that are owed to no zone."""
    let_go_of: int = 0
    """Value of ``free`` when `let_go` was last called."""
    chunk: int = CHUNK
    """Minimum number of tokens for a zone's prompts; it is reduced if the step is small, or full of decodes."""
    turned_away: list[Zone] = field(default_factory=list)
    """Zones whose waiting request was denied admission for lack of tokens."""

    @property
    def free(self) -> int:
        """Number of prompt tokens that any zone may still compute."""
        return self.unclaimed + self.spare

    def copy(self) -> Self:
        """Returns an independent copy."""
        return type(self)(
            dict(self.of_zone), self.unclaimed, self.spare, self.let_go_of, self.chunk, list(self.turned_away)
        )

    def clear(self) -> None:
        """Forget all tokens and zones, at the end of a step. The minimum number of tokens stays."""
        self.of_zone, self.turned_away = {}, []
        self.unclaimed = self.spare = self.let_go_of = 0

    def let_go(self, unused: int, kept: Collection[Zone]) -> tuple[list[Zone], dict[Zone, int]]:
        """Let prompts begin with less than a chunk, first from their own zones' tokens, then from other zones' tokens.

        Args:
            unused: number of tokens of a step that has computed nothing yet; 0 if it has computed anything.
            kept: zones whose tokens no other zone may use.

        Returns:
            The zones that were turned away for lack of tokens, to be considered again, and the number of tokens that
            each zone loses to the others.
        """
        with_rest = [zone for zone in self.turned_away if self.of_zone.get(zone)]
        if self.chunk > 1 and with_rest:
            self.chunk = 1
            self.turned_away = [zone for zone in self.turned_away if zone not in with_rest]
            return with_rest, {}
        self.chunk = 1
        turned_away, self.turned_away = self.turned_away, []
        lost = {zone: count for zone, count in self.of_zone.items() if count and zone not in kept}
        for zone, count in lost.items():
            del self.of_zone[zone]
            self.unclaimed += count
        # An empty step helps no request, whatever the targets are.
        self.spare += max(0, unused - self.free)
        # If prompts are computed in units of several tokens, the rest may be too small again.
        found, self.let_go_of = self.free - self.let_go_of, self.free
        return (turned_away if found > 0 else []), lost
