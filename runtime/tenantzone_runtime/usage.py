"""vLLM's arguments: what turns zones on, and what is given."""

from collections.abc import Sequence
from itertools import pairwise

FLAGS = {
    "--scheduler-cls": "tenantzone_runtime.engine.scheduler.ZoneScheduler",
    "--middleware": "tenantzone_runtime.door.middleware.TenantMiddleware",
}
"""What ``vllm serve`` needs to enforce zones."""

PLUGIN = "tenantzone"
"""vLLM's plugin of ours, by the name that its entry point has."""


class UsageError(ValueError):
    """Arguments or an environment that do not go together with zones; the message says what to change."""


def flag_values(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Each flag that is given, in vLLM's spelling, with its values; "" for one without.

    vLLM takes ``--a_b`` for ``--a-b``, and ``--a.b`` for one field of a flag that is a JSON object.
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
