"""The schemas of each release, which lie in ``crds/released/`` and never change."""

import hashlib
import shutil
from pathlib import Path

from hack.version import ROOT, VERSION

CRDS = ROOT / "crds"
RELEASED = CRDS / "released"
HASHES = RELEASED / "SHA256SUMS"
"""As ``sha256sum --check`` reads it, beside them. A line that is there is never edited: that would show in a review."""


class FrozenError(Exception):
    """The schemas of this version are kept already."""


def freeze() -> Path:
    """Keep ``crds/`` as the schemas of this version, and return the folder.

    Raises:
        FrozenError: there is one for this version.
    """
    folder = RELEASED / f"v{VERSION}"
    if folder.exists():
        raise FrozenError(f"{folder} is there already, and what was released never changes; raise the version first")
    folder.mkdir()
    for file in sorted(CRDS.glob("*.yaml")):
        shutil.copy(file, folder)
    HASHES.write_text(hashes())
    return folder


def hashes() -> str:
    """Those of all released schemas, as they are now."""
    files = sorted(RELEASED.glob("v*/*"))
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(RELEASED)}\n" for file in files)
