"""``python -m hack.release build | freeze``."""

import argparse
import sys
from pathlib import Path

from hack.images.build import TARGETS, ImageError
from hack.progress import CommandFailed
from hack.release.build import DISTRIBUTION, build
from hack.release.schemas import FrozenError, freeze


def main() -> int:
    """Build, list or check what a release consists of; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.release", description="What a release consists of.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    building = commands.add_parser("build", help="wheel, chart, SBOM, images and checksums of the last commit")
    building.add_argument("--images", nargs="*", choices=TARGETS, default=[], help="default: none")
    building.add_argument("--folder", type=Path, default=DISTRIBUTION, help="default: %(default)s")
    commands.add_parser("freeze", help="keep crds/ as the schemas of this version")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            build(arguments.folder, arguments.images)
        else:
            print(freeze())
    except (CommandFailed, FrozenError, ImageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
