"""The flags of vLLM that enable zones, and a parser for vLLM's command line."""

from collections.abc import Sequence
from itertools import pairwise

FLAGS = {
    "--scheduler-cls": "tenantzone_runtime.engine.scheduler.ZoneScheduler",
    "--middleware": "tenantzone_runtime.frontend.middleware.TenantMiddleware",
}
"""The flags that ``vllm serve`` needs to enforce zones."""

PLUGIN = "tenantzone"
"""Name of the entry point of TenantZone's vLLM plugin."""


class UsageError(ValueError):
    """The command line or the environment is incompatible with zones. The message states what to change."""


def flag_values(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Returns the values of each flag on a command line, by the flag's name; "" for a flag without a value.

    Names are normalized, because vLLM accepts ``--a_b`` for ``--a-b``, and ``--a.b`` for one field of a flag ``--a``
    whose value is a JSON object.
    """
    values: dict[str, list[str]] = {}
    for argument, following in pairwise([*arguments, "-"]):
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.partition("=")
        if not equals and not following.startswith("-"):
            value = following
        values.setdefault(name.partition(".")[0].replace("_", "-"), []).append(value)
    return values
