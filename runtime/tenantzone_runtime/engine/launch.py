"""vLLM's ``serve`` command, for any distribution that vLLM was installed from.

vLLM's own ``vllm`` reads the version of a distribution named ``vllm``, which its CPU builds are not. So this builds the
one subcommand without the rest of that program.
"""

import sys

from tenantzone_runtime.logs import configure_if_json

# This also runs in each process that vLLM spawns, which imports this module. vLLM configures its logs only later.
configure_if_json()


def main() -> None:
    """Run ``vllm serve`` with this process's arguments."""
    # Imported here: processes that vLLM spawns import this module again, and need none of it.
    from tenantzone_runtime.engine.versions import UnsupportedError, check_version, prepare_environment

    try:
        check_version()
    except UnsupportedError as error:
        sys.exit(f"tenantzone-runtime serve: {error}")

    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.logger import configure_logging_from_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    prepare_environment()
    parser = FlexibleArgumentParser(prog="vllm")
    command = ServeSubcommand()
    command.subparser_init(parser.add_subparsers(dest="subparser"))
    arguments = parser.parse_args([command.name, *sys.argv[1:]])
    configure_logging_from_args(arguments)
    command.validate(arguments)
    command.cmd(arguments)


if __name__ == "__main__":
    main()
