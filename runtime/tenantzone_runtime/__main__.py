"""The ``tenantzone-runtime`` command."""

import argparse
import sys
from importlib import import_module


def main() -> None:
    """Run a subcommand with the arguments after its name; ``serve`` passes unknown arguments to vLLM."""
    parser = argparse.ArgumentParser(prog="tenantzone-runtime", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module, what in (
        ("serve", "serve", "serve a model with vLLM, zones enforced"),
        ("hand-down", "hand_down", "have other engines find what this one has cached, before it ends"),
        ("journal", "journal.command", "check an audit journal, make a bill from it"),
    ):
        commands.add_parser(name, help=what, add_help=False).set_defaults(module=module)
    # Import only this command's module: the others have imports of their own.
    module = parser.parse_args(sys.argv[1:2]).module
    import_module(f"tenantzone_runtime.{module}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
