"""The ``tenantzone-replay`` command."""

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from tenantzone_contract.config import ConfigError
from tenantzone_contract.text import printable
from tenantzone_replay.load import TraceError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a subcommand; the exit code is 1 where a trace, a file or an option can't be used."""
    # Imported late: vLLM takes seconds to import, and --help needs none of it.
    from tenantzone_replay import advise, compare, fit, isolation, memory, rank

    parser = argparse.ArgumentParser(prog="tenantzone-replay", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command, what in (
        ("compare", compare, "serve a load by several policies, side by side"),
        ("advise", advise, "find the zones that keep a target with the least memory"),
        ("fit", fit, "measure how long an engine's steps take"),
        ("isolation", isolation, "say what it costs that tenants share no prefixes"),
        ("rank", rank, "rank services by what they gain in a pool, and say how many engines fewer would do"),
        ("memory", memory, "say what paging brings against one piece of memory for each request"),
    ):
        sub = commands.add_parser(name, help=what, description=command.__doc__)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    try:
        with _without_remarks():
            options.run(options)
    except (TraceError, ConfigError) as error:
        _end(str(error))
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error))


@contextmanager
def _without_remarks() -> Iterator[None]:
    """What vLLM and zones remark on each engine and request is about serving, and the tables count what was refused."""
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
