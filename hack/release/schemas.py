"""The schemas of each release, which lie in ``crds/released/`` and never change; empty before the first release."""

import hashlib
import shutil
from pathlib import Path

from hack.version import ROOT, VERSION

CRDS = ROOT / "crds"
RELEASED = CRDS / "released"
HASHES = RELEASED / "SHA256SUMS"
"""Checksums for ``sha256sum --check``, next to the schemas. Lines are never edited: a review would show it."""


class FrozenError(Exception):
    """The schemas of this version are kept already."""


def freeze() -> Path:
    """Keep ``crds/`` as the schemas of this version, and return the folder.

    Raises:
        FrozenError: there is one for this version.
    """
    folder = RELEASED / f"v{VERSION}"
    kept = HASHES.read_text().splitlines(keepends=True) if HASHES.exists() else []
    # The hashes are written last: without them, a folder is what an interrupted run has left.
    if any(_path_of(line).startswith(f"{folder.name}/") for line in kept):
        raise FrozenError(f"{folder} is there already, and what was released never changes; raise the version first")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in sorted(CRDS.glob("*.yaml")):
        shutil.copy(file, folder)
    HASHES.write_text("".join(sorted([*kept, *map(_line, folder.iterdir())], key=_path_of)))
    return folder


def hashes() -> str:
    """Returns the present hashes of all released schemas."""
    return "".join(sorted(map(_line, RELEASED.glob("v*/*")), key=_path_of))


def _line(file: Path) -> str:
    return f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(RELEASED)}\n"


def _path_of(line: str) -> str:
    return line.partition("  ")[2].strip()
