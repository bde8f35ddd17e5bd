"""Reads, writes and checks the value of vLLM's flag ``--kv-transfer-config``, which configures an engine's tiers."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tenantzone_contract.keys.tls import DEFAULT_TLS, TlsFiles
from tenantzone_runtime.shared.manager.urls import check_tls, check_url
from tenantzone_runtime.shared.settings import QUERY_SECONDS, check_query_seconds

CONNECTOR: Final = "ZoneOffloadingConnector"
CONNECTOR_MODULE: Final = "tenantzone_runtime.engine.tiers.offloading_connector"
_SPEC: Final = "ZoneOffloadingSpec"
_SPEC_MODULE: Final = "tenantzone_runtime.engine.tiers.offloading_spec"
CHUNK_SIZES: Final = ("block_size", "blocks_per_chunk")
_EVENTS: Final = "self_describing_kv_events"
_TLS_FILES: Final = {
    "manager_client_cert_file": "certificate",
    "manager_client_key_file": "key",
    "manager_ca_file": "authorities",
}
_BUDGET: Final = "manager_budget_seconds"
SHARED_STORAGES: Final = frozenset(("manager_url", "manager_token_file", _BUDGET, *_TLS_FILES))
"""Keys of the connector's extra config that configure shared storages."""
_DISK: Final = ("disk_folder", "disk_bytes")
_OURS: Final = ("spec_name", "spec_module_path", "cpu_bytes_to_use", *_DISK, *CHUNK_SIZES, _EVENTS)
_KNOWN: Final = SHARED_STORAGES.union(_OURS)
TIERS_FLAG: Final = "--kv-transfer-config"
SHARED_MEMORY: Final = Path("/dev/shm")
_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True, slots=True)
class DiskFlags:
    """The disk tier of one engine."""

    folder: Path
    bytes: int
    """Maximum disk space in bytes."""


@dataclass(frozen=True, slots=True)
class ManagerFlags:
    """The KV-cache manager whose storages an engine shares with other engines."""

    url: str
    """URL of the manager's HTTP port."""
    token_file: Path | None = None
    """File with the bearer token to send to the manager; None for no token."""
    tls: TlsFiles = DEFAULT_TLS
    """The CAs and the client certificate for an https URL."""
    budget_seconds: float = QUERY_SECONDS
    """Seconds for which a request waits for the manager's answer. Then the engine computes the prompt without it."""


@dataclass(frozen=True, slots=True)
class TierFlags:
    """The tiers of one engine."""

    cpu_bytes: int
    disk: DiskFlags | None = None
    tokens_per_chunk: int | None = None
    """Number of tokens per chunk, the smallest unit that tiers transfer; None for one block per chunk."""
    manager: ManagerFlags | None = None


class TierFlagError(ValueError):
    """The configuration of a tier is invalid. The message states what to change."""


def parse_bytes(text: str) -> int:
    """Parse a size, which is a number of bytes or a number with a unit, such as 64GiB. Returns the number of bytes.

    Raises:
        ValueError: the text is not a size.
    """
    number = text.rstrip("KMGTiB")
    unit = text[len(number) :]
    if not number.isdecimal() or unit not in _UNITS or not int(number):
        raise ValueError(f"{text!r} is not a size; write it like 64GiB")
    return int(number) * _UNITS[unit]


def kv_transfer_config(flags: TierFlags) -> str:
    """Returns the value of ``--kv-transfer-config`` for these tiers."""
    extra: dict[str, Any] = {
        "spec_name": _SPEC,
        "spec_module_path": _SPEC_MODULE,
        "cpu_bytes_to_use": flags.cpu_bytes,
    }
    if flags.disk is not None:
        extra |= {"disk_folder": str(flags.disk.folder), "disk_bytes": flags.disk.bytes}
    if flags.manager is not None:
        extra["manager_url"] = flags.manager.url
        if flags.manager.token_file is not None:
            extra["manager_token_file"] = str(flags.manager.token_file)
        if flags.manager.budget_seconds != QUERY_SECONDS:
            extra[_BUDGET] = flags.manager.budget_seconds
        files = {name: getattr(flags.manager.tls, field) for name, field in _TLS_FILES.items()}
        extra |= {name: str(path) for name, path in files.items() if path is not None}
    if flags.tokens_per_chunk is not None:
        extra["block_size"] = flags.tokens_per_chunk
    return json.dumps(
        {
            "kv_connector": CONNECTOR,
            "kv_connector_module_path": CONNECTOR_MODULE,
            "kv_role": "kv_both",
            "kv_connector_extra_config": extra,
        },
        separators=(",", ":"),
    )


def is_ours(transfer: Any) -> bool:
    """Returns whether a value of ``--kv-transfer-config``, as JSON or as vLLM's object, names the zones' connector."""
    if isinstance(transfer, str):
        try:
            transfer = json.loads(transfer)
        except ValueError:
            return False
    names = (_field(transfer, "kv_connector"), _field(transfer, "kv_connector_module_path"))
    return names == (CONNECTOR, CONNECTOR_MODULE)


def check_kv_transfer_config(value: str) -> None:
    """Check a value of ``--kv-transfer-config`` if it names the zones' connector.

    Raises:
        TierFlagError: the configuration is invalid, or there is too little shared memory for the CPU tier.
    """
    if is_ours(value):
        flags = read_tier_flags(json.loads(value).get("kv_connector_extra_config", {}))
        check_shared_memory(flags.cpu_bytes)


def read_tier_flags(extra: Mapping[str, Any]) -> TierFlags:
    """Read the tiers of an engine from the connector's extra config.

    Raises:
        TierFlagError: a setting is unknown or invalid. The message names the setting.
    """
    unknown = sorted(extra.keys() - _KNOWN)
    if unknown:
        raise TierFlagError(
            f"{', '.join(unknown)} in kv_connector_extra_config can't be used with zones, because zones decide what "
            f"each tier stores; omit it. Supported settings are {', '.join(sorted(_KNOWN))}"
        )
    for name, ours in (("spec_name", _SPEC), ("spec_module_path", _SPEC_MODULE)):
        if extra.get(name) != ours:
            raise TierFlagError(f"{name} in kv_connector_extra_config must be {ours}")
    return TierFlags(_bytes(extra, "cpu_bytes_to_use"), _disk(extra), manager=_manager(extra))


def _disk(extra: Mapping[str, Any]) -> DiskFlags | None:
    if "disk_folder" not in extra and "disk_bytes" not in extra:
        return None
    return DiskFlags(_path(extra, "disk_folder"), _bytes(extra, "disk_bytes"))


def _manager(extra: Mapping[str, Any]) -> ManagerFlags | None:
    if not extra.keys() & SHARED_STORAGES:
        return None
    url = extra.get("manager_url")
    if not isinstance(url, str):
        raise TierFlagError(f"manager_url must be the URL of a KV-cache manager; it is {url!r}")
    files = {field: _path(extra, name) for name, field in _TLS_FILES.items() if name in extra}
    try:
        check_url(url)
        tls = TlsFiles(**files)
        check_tls(url, tls)
    except ValueError as error:
        raise TierFlagError(f"manager_url: {error}") from None
    token = _path(extra, "manager_token_file") if "manager_token_file" in extra else None
    return ManagerFlags(url, token, tls, _budget(extra))


def _budget(extra: Mapping[str, Any]) -> float:
    try:
        return check_query_seconds(extra.get(_BUDGET, QUERY_SECONDS))
    except ValueError as error:
        raise TierFlagError(f"{_BUDGET} {error}") from None


def _path(extra: Mapping[str, Any], name: str) -> Path:
    path = extra.get(name)
    if not isinstance(path, str) or not Path(path).is_absolute():
        raise TierFlagError(f"{name} must be an absolute path such as /data/cache; it is {path!r}")
    return Path(path)


def check_shared_memory(size: int, engine_id: str = "", folder: Path = SHARED_MEMORY) -> None:
    """Check that the CPU memory tier fits into the system's shared memory. First removes files of killed engines.

    Args:
        size: the size of the tier, in bytes.
        engine_id: vLLM's engine id. If the tier's file already exists, nothing is checked or removed, because the file
            already has its memory.
        folder: the folder of shared memory.

    Raises:
        TierFlagError: there is not enough shared memory.
    """
    if (folder / f"vllm_offload_{engine_id}.mmap").exists() or not folder.is_dir():
        return
    _remove_leftovers(folder)
    free = shutil.disk_usage(folder).free
    if size > free:
        raise TierFlagError(
            f"the CPU memory tier takes {size >> 20} MiB of {folder}, which has {free >> 20} MiB free. A container "
            "has 64 MiB by default; mount an emptyDir with medium Memory there, use --shm-size, or make the tier "
            "smaller"
        )


def _remove_leftovers(folder: Path) -> None:
    """Remove the files that killed engines have left: files of CPU memory tiers that no visible process has open."""
    left = [path for path in folder.glob("vllm_offload_*.mmap") if _is_own(path)]
    if not left:
        return
    in_use = _mapped_files()
    for path in left:
        if str(path) not in in_use:
            path.unlink(missing_ok=True)


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.getuid()
    except FileNotFoundError:
        # The file's engine has ended, and has just removed the file.
        return False


def _mapped_files() -> str:
    """Returns a text that contains the paths of all files that visible processes have mapped or open."""
    texts = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            texts.append((process / "maps").read_text())
            texts += [str(each.readlink()) for each in (process / "fd").iterdir()]
        except OSError:
            # The process has ended, or belongs to another user.
            continue
    return "\n".join(texts)


def _bytes(extra: Mapping[str, Any], name: str) -> int:
    value = extra.get(name)
    try:
        size = int(value if value is not None else 0)
    except (TypeError, ValueError):
        size = 0
    if size <= 0:
        raise TierFlagError(f"{name} in kv_connector_extra_config must be a number of bytes; it is {value!r}")
    return size


def _field(transfer: Any, name: str) -> Any:
    return transfer.get(name) if isinstance(transfer, Mapping) else getattr(transfer, name, None)
