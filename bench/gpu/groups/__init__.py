"""Groups of phases. The phases of a group share one start of their engines."""

from bench.gpu.group import Group
from bench.gpu.groups import default

GROUPS: tuple[Group, ...] = (default.GROUP,)
"""In the order in which ``--phases all`` runs them; the first one is the default."""
