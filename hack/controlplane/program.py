"""The common parts of the programs that start clusters."""

import argparse
import sys

from hack.controlplane.binaries import BinariesError
from hack.controlplane.cluster import ClusterError
from hack.progress import CommandFailed


def run(parser: argparse.ArgumentParser) -> int:
    """Run the command (its ``do``), and print expected errors as messages. Returns the exit code."""
    arguments = parser.parse_args()
    try:
        return int(arguments.do(arguments))
    except (BinariesError, ClusterError, CommandFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
