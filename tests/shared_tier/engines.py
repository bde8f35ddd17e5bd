"""Shared tiers like those of a pool's engines, without an engine, with a real manager and real files."""

import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from threading import Event, Timer

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_runtime.shared.manager.queries import Finding, Query
from tenantzone_runtime.shared.opening import open_shared_tier
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.transfers.writing import Shape
from tests.disk.disks import CHUNK, SALT_KEY, content, instance
from tests.zones.core import declare

POOLS = {"chat": "ml/chat", "other": "ml/other"}
LONG, BRIEF = ("--lease", "60"), ("--lease", "0.5")
"""The readers' time: more than this machine may stall, or as short as a test is willing to wait."""
NUMBERS = count(1)
TENANTS = count(1)
PATIENT = SharedSettings(query_seconds=20, call_seconds=20, load_seconds=20, store_seconds=20, held_seconds=0.05)
"""For tests of results and not of times: this machine may stall for seconds."""
ENDLESS = replace(PATIENT, query_seconds=3600, call_seconds=3600, load_seconds=3600, store_seconds=3600)
"""For tests in which nothing may wait: a caller that does is seen to hang."""
HANG = 60.0
"""Seconds after which a test has hung."""


@contextmanager
def standing_still(manager):
    """Suspends the manager, and checks that no caller waits for it."""
    has_hung = Event()

    def go_on():
        has_hung.set()
        manager.resume()

    timer = Timer(HANG, go_on)
    manager.pause()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        manager.resume()
    assert not has_hung.is_set(), "a call has waited for the manager"


def group(pool, tenant="", **terms):
    """A manager's group for a pool, or for one of its zones."""
    return {"name": f"ml.{pool}{'.' if tenant else ''}{tenant}", "pools": [f"ml/{pool}"], **terms}


def tenant():
    """A new, unique tenant."""
    return f"acme-{next(TENANTS)}"


def prompt(name, length):
    """Keys of a prompt's chunks."""
    return [f"{name}-{number:04}".encode() * 3 for number in range(length)]


OBJECT = CHUNK + 12 + 4 + 16
"""Bytes of a chunk in a storage."""


def contents(keys):
    return [content(key) for key in keys]


def objects(manager, tenant=""):
    """Files of chunks, for a tenant or for all."""
    return [path for path in manager.storage.rglob("*.chunk") if tenant in str(path)]


def calls(manager, name):
    """How often the manager got this call."""
    with urllib.request.urlopen(f"{manager.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    counted = [line for line in lines if "requests_total" in line and f'call="{name}"' in line]
    return sum(float(line.split()[-1]) for line in counted)


def questions(manager):
    """How often the manager was asked for locations."""
    return calls(manager, "GetCacheLocation")


class Engine:
    """One engine of a pool, whose requests begin and end at once."""

    def __init__(
        self, url, *tenants, pool="chat", token=None, settings=PATIENT, salt_key=SALT_KEY, has_key=True, zones=(),
        storages=None, **parts,
    ):  # fmt: skip
        self.token = token if token is not None else pool
        self.parts = parts
        self.salt_key, self.has_key, self.pool = salt_key, has_key, pool
        self.ended = {}
        self.tier = open_shared_tier(
            url,
            None,
            Shape(CHUNK, 16),
            salt_key=lambda: self.salt_key,
            has_pool_key=lambda: self.has_key,
            instance=lambda tenant: instance(tenant, **self.parts),
            settings=settings,
            storages=storages,
        )
        self.tier._client._token = lambda: self.token
        self.declare(*(zones or [declare(tenant) for tenant in tenants]))

    def declare(self, *zones):
        self.tier.apply(make_config(next(NUMBERS), PoolConfig(namespace="ml", name=self.pool), zones))

    def store(self, tenant, keys, first=0):
        """Stores what a request has computed from a chunk on. Returns the keys that are there now."""
        query = Query(keys)
        number = self.begin_store(tenant, query, first)
        return sorted(self.end(number).moved)

    def begin_store(self, tenant, query, first=0):
        number = next(NUMBERS)
        memory = [memoryview(content(key)) for key in query.keys]
        chunks = [(index, query.keys[index], memory[index]) for index in range(first, len(query.keys))]
        self.tier.store(number, tenant, query, chunks)
        return number

    def found(self, tenant, keys):
        """The number of a prompt's chunks that can be loaded."""
        query = Query(keys)
        return self.hits(tenant, query)

    def hits(self, tenant, query):
        until = time.monotonic() + HANG
        for index, key in enumerate(query.keys):
            while (finding := self.tier.find(tenant, query, key)) is Finding.WAIT:
                assert time.monotonic() < until, "no answer comes"
                time.sleep(0.001)
            if finding is Finding.MISS:
                return index
        return len(query.keys)

    def load(self, tenant, keys):
        """The chunks of a prompt that a request loads."""
        query = Query(keys)
        number, memory = self.begin_load(tenant, query, self.hits(tenant, query))
        moved = set(self.end(number).moved)
        return [bytes(each) for key, each in zip(keys, memory, strict=False) if key in moved]

    def begin_load(self, tenant, query, hits):
        """Begins to load `hits` chunks. Returns the job's number and the memory."""
        number = next(NUMBERS)
        memory = [bytearray(b"\xff" * CHUNK) for _ in range(hits)]
        chunks = [(index, query.keys[index], memoryview(memory[index])) for index in range(hits)]
        self.tier.load(number, tenant, query, chunks)
        return number, memory

    def end(self, number):
        self.wait(lambda: number in self.ended)
        return self.ended.pop(number)

    def wait(self, condition, seconds=HANG):
        until = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < until, "it did not come to that"
            time.sleep(0.002)
            self.poll()
        return result

    def poll(self):
        self.tier.upkeep()
        self.ended |= {end.number: end for end in self.tier.finished()}

    def receipt(self):
        """The next receipt."""
        receipts = []
        self.wait(lambda: receipts.extend(self.tier.take_receipts()) or receipts)
        (receipt,) = receipts
        return receipt

    def counts(self, tenant):
        return self.tier.zones[tenant].counts

    def stop(self):
        self.tier.stop()


@contextmanager
def engines_of(url, *tenants):
    """Makes engines over one manager, with a zone for each tenant."""
    made = []

    def make(*others, **options):
        made.append(Engine(url, *tenants, *others, **options))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.stop()
