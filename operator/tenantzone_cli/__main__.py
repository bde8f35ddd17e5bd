"""``python -m tenantzone_cli``: the kubectl plugin, which kubectl calls as ``kubectl tenantzone`` or ``kubectl tz``."""

import sys
from collections.abc import Sequence

from tenantzone_cli.actions import planning
from tenantzone_cli.arguments import read_arguments
from tenantzone_cli.names import INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kubectl tenantzone`` with these arguments, and return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if planning.is_planned(given):
        return _plan(given[0], given[1:])
    parsed = read_arguments(given)
    # Import late, because --help does not need the commands' imports, which take time.
    from tenantzone_cli.commands import run

    return run(parsed)


def _plan(command: str, arguments: Sequence[str]) -> int:
    try:
        return planning.plan(command, arguments)
    except planning.PlanningError as error:
        print(f"kubectl tenantzone: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
