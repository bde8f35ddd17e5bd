"""A disk tier with real files, whose disk can be made to fail, and tenants that store and load."""

import os
import threading
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.instance import Instance
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.disk.files.file_system import LocalFileSystem
from tenantzone_runtime.disk.opening import open_disk_tier
from tenantzone_runtime.disk.tier import DiskSettings
from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.zones.core import declare

CHUNK = 256
FILE = 4096
"""Bytes of a chunk on the disk."""
SALT_KEY = b"k" * 32
NUMBERS = count(1)
UNBOUNDED = TransferBounds(100, 100)


def instance(tenant: str, **parts: Any) -> Instance:
    given = {
        "model": "m",
        "weights_revision": "r",
        "dtype": "bfloat16",
        "block_size": 16,
        "blocks_per_chunk": 1,
        "layout": "NHD",
        "tensor_parallel_size": 1,
        "tensor_parallel_rank": 0,
        "hash_algorithm": "sha256",
        "hash_seed": "",
        "salt_key_id": "id",
        "lora_digest": "",
        "engine_version": "0.32.0",
    }
    return Instance(zone=tenant, **(given | parts))


class FaultyDisk(LocalFileSystem):
    """The operating system's files, with calls that fail or wait on request."""

    def __init__(self):
        super().__init__()
        self.errors = {}
        """The exceptions that calls raise, by name of the call."""
        self.held = {}
        """By name of the call: the event that it waits for before it begins."""
        self.calls = []

    def lock(self, path):
        self._call("lock", partial(super().lock, path))

    def files(self, path):
        return self._call("files", partial(super().files, path))

    def write(self, path, content):
        return self._call("write", partial(super().write, path, content))

    def read(self, path, content):
        return self._call("read", partial(super().read, path, content))

    def rename(self, source, target):
        return self._call("rename", partial(super().rename, source, target))

    def remove(self, path):
        return self._call("remove", partial(super().remove, path))

    def hold(self, name):
        """Makes calls of this name wait. Returns the event that lets them continue."""
        self.held[name] = threading.Event()
        return self.held[name]

    def _call(self, name, work):
        self.calls.append(name)
        if name in self.held:
            self.held[name].wait(20.0)
        if name in self.errors:
            raise self.errors[name]
        return work()


def content(key):
    """The content of a chunk with this key."""
    return (key * CHUNK)[:CHUNK]


def files_in(folder):
    """All files of chunks under a folder; some may be removed meanwhile."""
    return [Path(found, name) for found, _, names in os.walk(folder) for name in names if "-" in name]


def keys(number, name=b"x"):
    """`number` keys of chunks."""
    return [name * 4 + index.to_bytes(4) for index in range(number)]


def in_bytes(share):
    """A share of the disk, given in chunks."""
    sizes = {name: value * FILE if isinstance(value, int) else value for name, value in share.items()}
    return TierShare(tier="disk", **sizes | {name: share[name] for name in share if name == "ttl_seconds"})


class Disk:
    """A tier of `chunks` chunks in a folder, and the requests of its tenants."""

    def __init__(
        self, root, chunks=8, bounds=UNBOUNDED, zones=None, seconds=20.0, opening=True, shape=None, writers=2, **shares
    ):
        self.root = Path(root)
        self.files = FaultyDisk()
        self.parts = {}
        self.ended = {}
        self.chunks, self.bounds, self.shape = chunks, bounds, shape
        self.settings = DiskSettings(readers=2, writers=writers, seconds=seconds)
        self.shares = {tenant: in_bytes(share) for tenant, share in shares.items()}
        self.tier = self._new()
        self.declare(*(zones or [declare(tenant) for tenant in shares]), opening=opening)

    def _new(self, salt_key=SALT_KEY):
        return open_disk_tier(
            self.root,
            self.chunks * FILE,
            CHUNK,
            salt_key=lambda: salt_key,
            instance=lambda tenant: instance(tenant, **self.parts),
            bounds=self.bounds,
            settings=self.settings,
            shape=self.shape,
            file_system=self.files,
            now=time.monotonic(),
        )

    def declare(self, *zones, opening=True):
        self.tier.apply(self.config(*zones))
        if opening:
            self.wait(lambda: self.tier.is_open)

    def config(self, *zones, **shares):
        """A config with the zones and the tenants' shares of the disk; given shares replace older ones."""
        self.shares |= {tenant: in_bytes(share) for tenant, share in shares.items()}
        self.zones = [self._with_share(zone) for zone in zones]
        return make_config(next(NUMBERS), PoolConfig(namespace="n", name="p"), self.zones)

    def _with_share(self, zone):
        share = self.shares.get(zone.tenant)
        return zone if share is None else zone.model_copy(update={"tiers": (share,)})

    def restart(self, *zones, salt_key=SALT_KEY, **parts):
        """Starts again with the content of the folder, as another engine process does."""
        self.tier.stop()
        self.files.unlock()
        self.files = FaultyDisk()
        self.parts |= parts
        self.tier = self._new(salt_key)
        self.declare(*(zones or self.zones))

    def stop(self):
        self.tier.stop()
        self.files.unlock()

    def zone(self, tenant):
        return self.tier.tier.zone_for(tenant, time.monotonic())

    def store(self, tenant, *keys):
        """Stores chunks and waits. Returns the keys of the stored ones."""
        return sorted(self.end(self.begin_store(tenant, *keys)).moved)

    def begin_store(self, tenant, *keys, protected=()):
        number = next(NUMBERS)
        zone = self.zone(tenant)
        self.tier.tier.request_arrived(zone, time.monotonic())
        self.tier.store(number, zone, [(key, memoryview(content(key))) for key in keys], protected)
        return number

    def find(self, tenant, *keys):
        return [self.tier.find(self.zone(tenant), key) for key in keys]

    def load(self, tenant, *keys):
        """Loads chunks and waits. Returns the content of their memory by key of the loaded ones."""
        memory = {key: bytearray(CHUNK) for key in keys}
        end = self.end(self.begin_load(tenant, memory))
        for key in set(keys) - set(end.moved):
            assert memory[key] == bytearray(CHUNK), "nothing is written unless all is right"
        assert end.is_whole == (len(end.moved) == len(keys))
        return {key: bytes(memory[key]) for key in end.moved}

    def begin_load(self, tenant, memory):
        number = next(NUMBERS)
        self.tier.load(number, self.zone(tenant), [(key, memoryview(view)) for key, view in memory.items()])
        return number

    def end(self, number):
        """Waits for the end of a job."""
        self.wait(lambda: number in self.ended)
        return self.ended.pop(number)

    def wait(self, condition, seconds=20.0):
        until = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < until, "it did not come to that"
            time.sleep(0.001)
            self.poll()
        return result

    def poll(self):
        self.tier.upkeep()
        self.ended |= {end.number: end for end in self.tier.finished()}
        self.tier.tier.check()

    def rest(self):
        """Waits until nothing is in transfer, and nothing is to be removed."""
        self.wait(lambda: self.tier.is_at_rest)

    def paths(self):
        """All files of chunks, by key; several of one are an error."""
        found = {}
        for path in files_in(self.root / "objects"):
            key = bytes.fromhex(path.name.split("-")[0])
            found.setdefault((path.parent.parent.name, key), []).append(path)
        assert all(len(paths) == 1 for paths in found.values())
        return {key: paths[0] for (_, key), paths in found.items()}

    def counts(self, tenant):
        return self.tier.figures().zones[tenant].counts
