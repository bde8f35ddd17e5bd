"""Utilities for vLLM's arguments: the flags that enable zones, and a parser for given flags."""

from collections.abc import Sequence
from itertools import pairwise

FLAGS = {
    "--scheduler-cls": "tenantzone_runtime.engine.scheduler.ZoneScheduler",
    "--middleware": "tenantzone_runtime.frontend.middleware.TenantMiddleware",
}
"""The flags that ``vllm serve`` needs to enforce zones."""

PLUGIN = "tenantzone"
"""The name of our vLLM plugin's entry point."""


class UsageError(ValueError):
    """Arguments or an environment that are incompatible with zones; the message states what to change."""


def flag_values(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Returns the values of each given flag, by the flag in vLLM's spelling; "" for a flag without a value.

    vLLM accepts ``--a_b`` for ``--a-b``, and ``--a.b`` for one field of a flag that is a JSON object.
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
