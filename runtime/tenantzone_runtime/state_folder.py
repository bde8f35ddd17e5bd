"""The folder that the engine core shares with its API server processes, which no other user may change.

It lies where other users of the container may write. If it is removed, one of them could make a folder of its name and
write a config into it.
"""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolder(OSError):
    """Another user could write into the folder; the message says why."""


def check_state_folder(folder: Path) -> None:
    """Check that the folder is this user's, or root's, and that no other user can write into it.

    Raises:
        UnsafeFolder: it is not.
        FileNotFoundError: there is none.
        OSError: it is out of reach.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFolder(f"{folder} is not a folder; remove it")
    if found.st_uid not in (os.geteuid(), 0):
        raise UnsafeFolder(f"{folder} belongs to the user {found.st_uid}; remove it")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise UnsafeFolder(f"other users can write into {folder} (mode {mode:o}); remove it, or give it the mode 700")
