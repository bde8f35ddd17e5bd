"""Writes files into a folder as kubelet projects a ConfigMap: readers see all of the old content or all of the new.

    config.json -> ..data/config.json
    ..data      -> ..2026_11_21_10_00_00.123456
    ..2026_11_21_10_00_00.123456/config.json

Only ``..data`` changes, by one rename. This is kubelet's own layout, so what works here works on a node.
"""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

DATA = "..data"


def project(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Make the folder contain exactly these files; returns False if it already did."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / DATA
    if data.exists() and _content(data) == dict(files):
        return False
    previous = folder / data.readlink() if data.is_symlink() else None
    current = folder / datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.%f")
    current.mkdir()
    for name, content in files.items():
        (current / name).write_bytes(content)
    _point(data, current.name)
    for name in files:
        _point(folder / name, f"{DATA}/{name}")
    for shown in folder.iterdir():
        if not shown.name.startswith("..") and shown.name not in files:
            shown.unlink()
    if previous is not None:
        shutil.rmtree(previous)
    return True


def _content(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data.iterdir()}


def _point(link: Path, target: str) -> None:
    """Create or replace a symlink atomically."""
    fresh = link.with_name("..new_link")
    fresh.symlink_to(target)
    fresh.rename(link)
