"""The ``tenantzone-manager`` command, which records for many engines where KV-cache blocks are stored."""

import logging
import sys
from collections.abc import Sequence

from tenantzone_contract.extras import needs_extra


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends the process. The exit code is 1 if a setting is invalid or the index can't be opened.

    With ``events`` as the first argument, print the events that a manager has written instead of serving. The exit code
    is also 1 if a package of the extra ``manager`` is not installed.
    """
    with needs_extra("tenantzone-manager", "manager"):
        _run(sys.argv[1:] if arguments is None else arguments, owns_process=arguments is None)


def _run(arguments: Sequence[str], *, owns_process: bool) -> None:
    # Import late, because these modules need packages of the extra, and because --help needs no server modules.
    if arguments[:1] == ["events"]:
        from tenantzone_manager.events import command

        command.main(arguments[1:])
        return
    from tenantzone_manager.arguments import make_parser

    options = make_parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    from tenantzone_manager.starting import start

    start(options, owns_process=owns_process)


if __name__ == "__main__":
    main()
