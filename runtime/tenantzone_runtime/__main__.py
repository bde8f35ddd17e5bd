"""The ``tenantzone-runtime`` command."""

import argparse
import sys

from tenantzone_runtime import serve


def main() -> None:
    """Run a subcommand; arguments that it does not know are vLLM's."""
    parser = argparse.ArgumentParser(prog="tenantzone-runtime", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands.add_parser("serve", help="serve a model with vLLM, zones enforced", add_help=False)
    parser.parse_args(sys.argv[1:2])
    serve.main(sys.argv[2:])


if __name__ == "__main__":
    main()
