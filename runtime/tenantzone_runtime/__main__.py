"""The ``tenantzone-runtime`` command."""

import argparse
import sys
from importlib import import_module


def main() -> None:
    """Run the subcommand that the command line names, with the arguments after its name."""
    parser = argparse.ArgumentParser(prog="tenantzone-runtime", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module, what in (
        ("serve", "commands.serve", "serve a model with vLLM, and enforce zones"),
        ("hand-down", "commands.hand_down", "copy this engine's cached blocks to shared storages before it ends"),
        ("journal", "journal.command", "check an audit journal, or create a bill from it"),
    ):
        commands.add_parser(name, help=what, add_help=False).set_defaults(module=module)
    # Import only the module of this command, because the imports of the other commands take time.
    module = parser.parse_args(sys.argv[1:2]).module
    import_module(f"tenantzone_runtime.{module}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
