"""``replay`` and ``advise``: run the replay, if installed, to predict the effect of zones on recorded traffic.

The replay uses vLLM's scheduler. So the plugin does not import the replay, but runs it as a separate program.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tenantzone_cli.names import CONNECTION
from tenantzone_contract.extras import install_command

COMMANDS: Final = {"replay": "compare", "advise": "advise"}
"""Subcommand of the replay for each command of the plugin."""
_EXTRAS: Final = {"replay": "replay", "advise": "advice"}
"""Package extra that each command needs in addition to the engine's extra."""
_LIVE: Final = frozenset(
    {"--watch", "--once", "-n", "--namespace", "-A", "--all-namespaces"} | {f"--{name}" for name in CONNECTION}
)
"""Flags with which ``advise`` reads a cluster instead of a trace."""


class PlanningError(Exception):
    """The replay can't run on this machine; the message says what to install."""


def is_planned(arguments: Sequence[str]) -> bool:
    """Returns whether the replay, and not this plugin, handles these arguments."""
    if not arguments or arguments[0] not in COMMANDS:
        return False
    # Cut off values that are attached to flags, as in --namespace=team and -nteam.
    flags = {argument.partition("=")[0] if argument.startswith("--") else argument[:2] for argument in arguments}
    return arguments[0] != "advise" or not _LIVE & flags


def plan(command: str, arguments: Sequence[str]) -> int:
    """Run the replay, and return its exit code.

    Args:
        command: one of ``COMMANDS``.
        arguments: the replay's arguments.

    Raises:
        PlanningError: the runtime or vLLM is not installed.
    """
    for package in ("tenantzone_replay", "vllm"):
        if importlib.util.find_spec(package) is None:
            raise PlanningError(
                f"{command!r} needs {package}, which is not installed with this plugin: "
                f"{install_command('cpu', _EXTRAS[command])}, or run tenantzone-replay where the engine is installed"
            )
    # With -P, Python does not import modules from the current folder.
    return subprocess.call([sys.executable, "-P", "-m", "tenantzone_replay", COMMANDS[command], *arguments])
