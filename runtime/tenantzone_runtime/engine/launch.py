"""vLLM's ``serve`` command, for any distribution package of vLLM.

The ``vllm`` command reads the version of a distribution named ``vllm``, but vLLM's CPU builds have another name. So
this module builds only the subcommand.
"""

import sys

from tenantzone_runtime.logs import configure_if_json

# This also runs in each process that vLLM spawns, because it imports this module. vLLM configures its logs later.
configure_if_json()


def main() -> None:
    """Run ``vllm serve`` with this process's arguments."""
    # Imported here, because processes that vLLM spawns import this module again but do not need these modules.
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
