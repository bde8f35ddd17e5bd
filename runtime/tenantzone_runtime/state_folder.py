"""Checks the folder that the engine core shares with its API server processes. Only their user may write to the folder.

Other users of the container may be able to write to the parent folder. If the shared folder is removed, such a user
could create a folder of the same name, and write a config into it.
"""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolder(OSError):
    """Another user could write to the folder. The message states why, and what to do."""


def own_folder(folder: Path) -> Path:
    """Returns ``folder``. If other users can write to it, returns a subfolder to which only this user can write.

    Other users can often write to a volume's folder: an emptyDir of Kubernetes has the mode 777. In such a folder, this
    function creates the subfolder. If ``folder`` is itself such a subfolder, the function returns ``folder``.

    Raises:
        UnsafeFolder: another user has created a subfolder with that name, or the volume does not support modes.
        OSError: the subfolder can't be created.
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
    """Check that the folder is owned by this user or root, and that no other user can write to it.

    Raises:
        UnsafeFolder: the path is not a folder, or another user owns the folder or can write to it.
        FileNotFoundError: the folder does not exist.
        OSError: the folder is inaccessible.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFolder(f"{folder} is not a folder; remove it")
    if found.st_uid not in (os.geteuid(), 0):
        raise UnsafeFolder(f"{folder} belongs to the user {found.st_uid}; remove it")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise UnsafeFolder(f"other users can write into {folder} (mode {mode:o}); remove it, or give it the mode 700")
