"""vLLM's ``serve`` command, whichever distribution vLLM was installed from.

vLLM's own ``vllm`` asks for the version of a distribution named ``vllm``, which its builds for CPU are not; so this
makes the one subcommand that is wanted without the rest of that program.
"""

import sys

from tenantzone_runtime.logs import configure_if_json

# In each process that vLLM spawns, too: they import this module again. vLLM does so itself, but some time later.
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
