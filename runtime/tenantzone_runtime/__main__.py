"""The ``tenantzone-runtime`` command."""

import argparse
import sys

from tenantzone_runtime import hand_down, serve
from tenantzone_runtime.journal import command as journal


def main() -> None:
    """Run a subcommand with the arguments that follow its name; those that ``serve`` does not know are vLLM's."""
    parser = argparse.ArgumentParser(prog="tenantzone-runtime", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, run, what in (
        ("serve", serve.main, "serve a model with vLLM, zones enforced"),
        ("hand-down", hand_down.main, "have other engines find what this one has cached, before it ends"),
        ("journal", journal.main, "check an audit journal, make a bill from it"),
    ):
        commands.add_parser(name, help=what, add_help=False).set_defaults(run=run)
    parser.parse_args(sys.argv[1:2]).run(sys.argv[2:])


if __name__ == "__main__":
    main()
