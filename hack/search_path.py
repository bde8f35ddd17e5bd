"""The search path of programs: PATH, and the folders of the administrator's programs.

Debian leaves those out of users' PATH, and root who came by ``su`` has a user's PATH, too.
"""

import os
import shutil

_ADMINISTRATOR = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find_program(name: str) -> str | None:
    """The path of a program, which may be one of the administrator's; None if it is not there."""
    return shutil.which(name, path=_search_path())


def environment() -> dict[str, str]:
    """Ours for a program that is the administrator's, or that calls such programs itself: its PATH finds them."""
    return os.environ | {"PATH": _search_path()}


def _search_path() -> str:
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*folders, *(folder for folder in _ADMINISTRATOR if folder not in folders)])
