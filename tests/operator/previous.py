"""The previous release's operator, engine and schemas, from the repository's history.

That is the last release's tag. Before the first release it is a commit of the main branch, since an operator and an
engine of two commits must work together, too.
"""

import io
import subprocess
from pathlib import Path
from typing import Final

from hack.archives import unpack
from hack.compatibility import newest_release
from hack.release.history import last_tag
from hack.release.schemas import RELEASED

ROOT = Path(__file__).parents[2]
_BEFORE_TAGS = "388e7e45c6cd0ee20ce494a5ef64415cea0e1635"
COMMIT: Final = last_tag() or _BEFORE_TAGS
NAME: Final = f"from {last_tag() or f'{_BEFORE_TAGS[:7]}, since no release is tagged'}"
"""The starting point of the upgrade, for the names of tests."""
_PACKAGES = ("operator/tenantzone_operator", "runtime/tenantzone_contract", "runtime/tenantzone_runtime")


def is_known() -> bool:
    """Whether the history is there: a shallow clone lacks it, and so does a folder that is no clone."""
    return subprocess.run(["git", "cat-file", "-e", COMMIT], cwd=ROOT, capture_output=True, check=False).returncode == 0


def unpack_previous(folder: Path) -> str:
    """Writes its packages into a folder, and returns the PYTHONPATH on which they come first."""
    _unpack(folder, *_PACKAGES)
    return ":".join(dict.fromkeys(str(folder / package.partition("/")[0]) for package in _PACKAGES))


def previous_schemas(folder: Path) -> Path:
    """Returns the folder of its schemas; before the first release they are written into the given folder."""
    released = newest_release(RELEASED)
    if released is None:
        _unpack(folder, "crds")
    return released or folder / "crds"


def _unpack(folder: Path, *paths: str) -> None:
    archive = subprocess.run(["git", "archive", COMMIT, *paths], cwd=ROOT, capture_output=True, check=True).stdout
    unpack(io.BytesIO(archive), folder)
