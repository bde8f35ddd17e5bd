"""Folders as kubelet projects ConfigMaps and Secrets: files are links through ``..data``, swapped in one step."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config


def project(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Replace what the folder shows by these files, in kubelet's order: new content, swap, clean up."""
    folder.mkdir(mode=0o700, exist_ok=True)
    current = folder / "..data"
    old = current.readlink() if current.is_symlink() else None
    new = folder / f"..{0 if old is None else int(old.name.removeprefix('..')) + 1}"
    new.mkdir()
    for name, content in files.items():
        (new / name).write_bytes(content.encode() if isinstance(content, str) else content)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    swapped = folder / "..data_tmp"
    swapped.symlink_to(new.name)
    swapped.rename(current)
    for link in folder.iterdir():
        if not link.name.startswith("..") and link.name not in files:
            link.unlink()
    if old is not None:
        shutil.rmtree(folder / old)


def config(generation: int = 1, *zones: ZoneConfig) -> RuntimeConfig:
    return make_config(generation, PoolConfig(namespace="models", name="main"), zones)


def zone(tenant: str, **fields: object) -> ZoneConfig:
    return ZoneConfig.model_validate({"name": tenant, "tenant": tenant, "generation": 1, **fields})


def config_text(generation: int = 1, *tenants: str) -> str:
    return dump_config(config(generation, *map(zone, tenants)))
