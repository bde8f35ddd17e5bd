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


def own_folder(folder: Path) -> Path:
    """Returns the folder to use where ``folder`` is named: that one, or one in it that other users cannot write into.

    A volume's folder is often open to other users: an emptyDir of Kubernetes has the mode 777. There a folder is made
    that is this user's alone. What this function returned before, it returns again.

    Raises:
        UnsafeFolder: another user has made a folder of that name, or the volume does not keep modes.
        OSError: the folder cannot be made.
    """
    name = f"tenantzone-{os.geteuid()}"
    if folder.name == name:
        return folder
    folder = folder.resolve()
    try:
        check_state_folder(folder)
    except FileNotFoundError:
        pass
    except UnsafeFolder:
        folder /= name
        folder.mkdir(mode=0o700, exist_ok=True)
        check_state_folder(folder)
    return folder


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
