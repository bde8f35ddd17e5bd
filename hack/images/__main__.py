"""``python -m hack.images TARGET ...``: builds images and says how large they are."""

import argparse
import sys
from pathlib import Path

from hack.images.build import TARGETS, ImageError, build
from hack.progress import CommandFailed


def main() -> int:
    """Build the images that were asked for and print their sizes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.images", description=__doc__)
    parser.add_argument(
        "target", nargs="*", choices=TARGETS, default=["operator", "engine"], help="default: %(default)s"
    )
    parser.add_argument("--export", type=Path, metavar="FOLDER", help="write archives that docker and ctr can load")
    arguments = parser.parse_args()
    try:
        for target in arguments.target:
            image = build(target)
            print(f"{image.name}  {image.size_bytes / 1e6:.0f} MB  {image.digest}")
            if arguments.export is not None:
                arguments.export.mkdir(parents=True, exist_ok=True)
                image.export(arguments.export / f"{target}.tar")
    except (ImageError, CommandFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
