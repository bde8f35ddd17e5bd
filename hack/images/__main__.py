"""``python -m hack.images TARGET ...``: builds images and says how large they are."""

import argparse
import sys
from pathlib import Path

from hack.images.build import TARGETS, ImageError, build
from hack.progress import CommandFailed

_DEFAULT = ("operator", "engine")


def main() -> int:
    """Build the images that were asked for and print their sizes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.images", description=__doc__)
    names = ", ".join(TARGETS)
    # Without choices: Python 3.11 takes a list, even an empty one, for an invalid choice.
    parser.add_argument("target", nargs="*", help=f"of {names} (default: {' '.join(_DEFAULT)})")
    parser.add_argument("--export", type=Path, metavar="FOLDER", help="write archives that docker and ctr can load")
    arguments = parser.parse_args()
    if unknown := [target for target in arguments.target if target not in TARGETS]:
        parser.error(f"{unknown[0]!r} is none of {names}")
    try:
        for target in arguments.target or _DEFAULT:
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
