"""The ``tenantzone-replay`` command."""

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NoReturn

from tenantzone_contract.extras import needs_extra
from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.config import ConfigError
from tenantzone_replay.traces.load import TraceError

_COMMANDS: Final = {
    "compare": "replay a load with several policies, and compare them",
    "advise": "find the zones that reach a latency target with the least memory",
    "fit": "measure how long an engine's steps take",
    "isolation": "report the cost of not sharing prefixes between tenants",
    "rank": "rank services by their gain from a pool, and report how many engines the pool saves",
    "memory": "report the gain of paging over one contiguous piece of memory per request",
}
"""Help text by command. Each command is a module, which is imported only when the command runs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a subcommand. Exits with code 1 and a message if a trace, a file or an option can't be used.

    Also exits with code 1 and a message if vLLM or a package of the extra ``replay`` is not installed.
    """
    # If vLLM is installed, don't name the extra cpu, because installing this extra would replace a vLLM for GPUs.
    extras = ["replay"] if find_spec("vllm") else ["cpu", "replay"]
    with needs_extra("tenantzone-replay", *extras):
        _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="tenantzone-replay", description=__doc__)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, what in _COMMANDS.items():
        commands.add_parser(name, help=what, add_help=False)
    command = import_module(f"tenantzone_replay.commands.{parser.parse_args(arguments[:1]).command}")
    parser = argparse.ArgumentParser(prog=f"tenantzone-replay {arguments[0]}", description=command.__doc__)
    command.add_arguments(parser)
    options = parser.parse_args(arguments[1:])
    try:
        with _without_remarks():
            command.run(options)
    except (TraceError, ConfigError) as error:
        _end(str(error))
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Suppress warnings and less severe log lines, such as those about refused requests, which the tables count."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _end(why: str) -> NoReturn:
    sys.exit(f"tenantzone-replay: {printable(why)}")


if __name__ == "__main__":
    main()
