"""Groups of phases. The phases of a group share one start of their engines."""

from bench.gpu.group import Group
from bench.gpu.groups import adapters, default, draft, graphs, hybrid, scrub, smollm2, steps, tier

GROUPS: tuple[Group, ...] = (
    default.GROUP,
    graphs.GROUP,
    tier.GROUP,
    scrub.GROUP,
    adapters.GROUP,
    hybrid.GROUP,
    draft.GROUP,
    steps.GROUP,
    smollm2.GROUP,
)
"""Groups in the order in which ``--phases all`` runs them; the first one is the default."""
