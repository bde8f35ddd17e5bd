"""The parts of ``--kv-transfer-config`` that turn tiers on: read, refused by name, and room made at the start."""

import json
import mmap
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenantzone_contract.keys.tls import TlsFiles
from tenantzone_runtime.offloading_flags import (
    CONNECTOR,
    CONNECTOR_MODULE,
    DiskFlags,
    ManagerFlags,
    TierFlagError,
    TierFlags,
    check_kv_transfer_config,
    check_shared_memory,
    is_ours,
    kv_transfer_config,
    parse_bytes,
    read_tier_flags,
)

GIB = 2**30


def extra_of(flags):
    return json.loads(kv_transfer_config(flags))["kv_connector_extra_config"]


@pytest.mark.parametrize(("text", "size"), [("64GiB", 64 * GIB), ("1", 1), ("3MiB", 3 * 2**20), ("2TiB", 2**41)])
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "64GB", "-1", "1.5GiB", "0", "0GiB", "64 GiB", "1GiBGiB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size; write it like 64GiB"):
        parse_bytes(text)


@pytest.mark.parametrize("disk", [None, DiskFlags(Path("/data/cache"), 10 * GIB)])
@pytest.mark.parametrize(
    "manager",
    [
        None,
        ManagerFlags("http://m:9470"),
        ManagerFlags("https://m", Path("/token")),
        ManagerFlags("http://m", budget_seconds=0.5),
        ManagerFlags("https://m", tls=TlsFiles(authorities=Path("/ca"))),
        ManagerFlags("https://m", Path("/token"), TlsFiles(Path("/certificate"), Path("/key"), Path("/ca"))),
    ],
)
def test_what_is_written_is_read_again(disk, manager):
    flags = TierFlags(GIB, disk, manager=manager)
    assert is_ours(kv_transfer_config(flags))
    assert read_tier_flags(extra_of(flags)) == flags


def test_only_the_connector_of_the_zones_is_theirs():
    ours = SimpleNamespace(kv_connector=CONNECTOR, kv_connector_module_path=CONNECTOR_MODULE)
    assert is_ours(ours)
    for other in (
        "{}", "no JSON", "[]", '{"kv_connector": "OffloadingConnector"}',
        json.dumps({"kv_connector": CONNECTOR, "kv_connector_module_path": "another.module"}),
        SimpleNamespace(kv_connector="NixlConnector", kv_connector_module_path=None),
    ):  # fmt: skip
        assert not is_ours(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"secondary_tiers": []}, "secondary_tiers in kv_connector_extra_config can't be used with zones"),
        ({"eviction_policy": "arc"}, "eviction_policy in kv_connector_extra_config can't be used with zones"),
        ({"spec_name": "TieringOffloadingSpec"}, "spec_name in kv_connector_extra_config must be ZoneOffloadingSpec"),
        ({"cpu_bytes_to_use": 0}, "cpu_bytes_to_use in kv_connector_extra_config must be a number of bytes; it is 0"),
        ({"cpu_bytes_to_use": "much"}, "must be a number of bytes; it is 'much'"),
        ({"disk_folder": "cache", "disk_bytes": 1}, "disk_folder must be an absolute path"),
        ({"disk_folder": "/cache"}, "disk_bytes in kv_connector_extra_config must be a number of bytes; it is None"),
        ({"disk_bytes": 1}, "disk_folder must be an absolute path such as /data/cache; it is None"),
        ({"manager_url": 1}, "manager_url must be the URL of a KV-cache manager; it is 1"),
        (
            {"manager_url": "manager:9470"},
            "'manager:9470' is not a valid URL of a KV-cache manager; use the form http://HOST:9470",
        ),
        ({"manager_token_file": "/token"}, "manager_url must be the URL of a KV-cache manager; it is None"),
        ({"manager_url": "http://m", "manager_token_file": "token"}, "manager_token_file must be an absolute path"),
        ({"manager_ca_file": "/ca"}, "manager_url must be the URL of a KV-cache manager; it is None"),
        ({"manager_url": "http://m", "manager_ca_file": "/ca"}, "certificates require a URL that begins with https"),
        ({"manager_url": "https://m", "manager_ca_file": 1}, "manager_ca_file must be an absolute path"),
        ({"manager_budget_seconds": 0.5}, "manager_url must be the URL of a KV-cache manager; it is None"),
        *(
            ({"manager_url": "http://m", "manager_budget_seconds": given}, f"at most 5, in seconds; it is {given!r}")
            for given in (0, -0.1, 5.1, "1", True, float("nan"))
        ),
        ({"manager_url": "https://m", "manager_client_cert_file": "/cert"}, "its key must be given together"),
    ],
)
def test_what_can_not_be_is_refused_by_name(change, message):
    with pytest.raises(TierFlagError, match=re.escape(message)):
        read_tier_flags(extra_of(TierFlags(GIB)) | change)


def test_too_little_shared_memory_is_said_before_an_engine_starts():
    with pytest.raises(
        TierFlagError, match=r"takes 1099511627776 MiB of /dev/shm, which has \d+ MiB free. A container"
    ):
        check_kv_transfer_config(kv_transfer_config(TierFlags(2**60)))


def test_what_an_engine_that_was_killed_left_is_removed_and_nothing_else(tmp_path):
    left, mapped, other = (tmp_path / f"{name}" for name in ("vllm_offload_a.mmap", "vllm_offload_b.mmap", "psm_c"))
    for path in (left, mapped, other):
        path.write_bytes(b"x" * mmap.PAGESIZE)
    with mapped.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        check_shared_memory(1, folder=tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["psm_c", "vllm_offload_b.mmap"]


def test_what_another_engine_removes_meanwhile_is_no_trouble(tmp_path):
    # Listed, and gone when it is examined.
    (tmp_path / "vllm_offload_a.mmap").symlink_to(tmp_path / "gone")
    check_shared_memory(1, folder=tmp_path)


def test_a_tier_that_is_there_already_has_its_memory(tmp_path):
    (tmp_path / "vllm_offload_this.mmap").write_bytes(b"x")
    check_shared_memory(2**60, "this", folder=tmp_path)
    with pytest.raises(TierFlagError):
        check_shared_memory(2**60, "another", folder=tmp_path)
