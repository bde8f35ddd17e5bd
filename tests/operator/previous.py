"""The previous release's operator and engine, from the repository's history.

That is the last release's tag. Until there is one, it is the commit whose schemas are kept as ``v0.1.0``, which was
never tagged.
"""

import io
import subprocess
from pathlib import Path
from typing import Final

from hack.archives import unpack
from hack.release.history import last_tag

ROOT = Path(__file__).parents[2]
_BEFORE_TAGS = "78c555bbddfb0b4c4287fc177041e058be0ea4b4"
COMMIT: Final = last_tag() or _BEFORE_TAGS
NAME: Final = f"from {last_tag() or f'{_BEFORE_TAGS[:7]}, since no release is tagged'}"
"""The starting point of the upgrade, for the names of tests."""
_PACKAGES = ("operator/tenantzone_operator", "runtime/tenantzone_contract", "runtime/tenantzone_runtime")


def is_known() -> bool:
    """Whether the history is there: a shallow clone lacks it, and so does a folder that is no clone."""
    return subprocess.run(["git", "cat-file", "-e", COMMIT], cwd=ROOT, capture_output=True, check=False).returncode == 0


def unpack_previous(folder: Path) -> str:
    """Writes its packages into a folder, and returns the PYTHONPATH on which they come first."""
    archive = subprocess.run(["git", "archive", COMMIT, *_PACKAGES], cwd=ROOT, capture_output=True, check=True).stdout
    unpack(io.BytesIO(archive), folder)
    return ":".join(dict.fromkeys(str(folder / package.partition("/")[0]) for package in _PACKAGES))
