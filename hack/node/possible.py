"""Whether a node can run on this machine."""

import os
import subprocess
import sys
from pathlib import Path

NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")
"""The namespaces that a node has of its own, as unshare and nsenter name them."""

_CGROUPS = Path("/sys/fs/cgroup")


def obstacle() -> str | None:
    """Why no node can run here; None if one can. It tries the rights that a node needs, and leaves nothing behind."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a node needs root and Linux"
    mount = ("mount", "-t", "tmpfs", "none", "/mnt")
    tried = subprocess.run(
        ["unshare", *NAMESPACES, "--fork", "--mount-proc", "--propagation=private", *mount],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        return f"namespaces with mounts of their own can't be made here: {tried.stderr.strip()}"
    return _cgroup_obstacle()


def _cgroup_obstacle() -> str | None:
    # Version 1 has a tree for each controller, version 2 has one tree.
    tree = next((each for each in (_CGROUPS / "memory", _CGROUPS) if each.is_dir()), None)
    if tree is None:
        return f"there are no control groups in {_CGROUPS}"
    group = tree / f"tenantzone-{os.getpid()}"
    try:
        group.mkdir()
        group.rmdir()
    except OSError as error:
        return f"control groups can't be made here: {error}"
    return None
