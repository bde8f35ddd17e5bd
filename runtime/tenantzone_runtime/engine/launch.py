"""Runs vLLM's ``serve`` command, whatever the name of vLLM's distribution package.

The ``vllm`` command fails if no distribution named ``vllm`` is installed, and vLLM's CPU builds have another name. So
this module runs the subcommand directly.
"""

import sys

from tenantzone_runtime.logs import configure_if_json

# At module level, because each process that vLLM spawns imports this module, and only later configures vLLM's logs.
configure_if_json()


def main() -> None:
    """Run ``vllm serve`` with this process's arguments."""
    # Imported here, because processes that vLLM spawns import this module too, but do not call this function.
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
