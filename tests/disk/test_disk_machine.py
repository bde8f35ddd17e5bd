"""Random lives of a disk tier with real files and faults: what is loaded is right, and no promise is broken."""

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.disk.disks import FILE, Disk, content, files_in, keys
from tests.zones.core import declare

CHUNKS = 6
TENANTS = ("acme", "gold", "late")
KEYS = keys(5)
CALLS = ("write", "rename", "read", "remove", "files")
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.ENOENT)

tenants = st.sampled_from(TENANTS)
some_keys = st.lists(st.sampled_from(KEYS), unique=True, min_size=1)


def harmed(harm, path, other):
    """Do to a chunk's file what others than the tier may do to it."""
    written = path.read_bytes()
    if harm == "removed":
        path.unlink()
    elif harm == "cut":
        os.truncate(path, len(written) - 1)
    elif harm == "changed":
        path.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    else:
        path.write_bytes(other.read_bytes())
        other.write_bytes(written)


class DiskLives(RuleBasedStateMachine):
    """Each job is waited for; what happens meanwhile is what its threads make of it."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.disk = None
        self.purges = 0

    @initialize(reserved=st.lists(st.integers(0, 2), min_size=3, max_size=3), limit=st.integers(2, CHUNKS))
    def begin(self, reserved, limit):
        shares = {tenant: {"reserved": blocks} for tenant, blocks in zip(TENANTS, reserved, strict=True)}
        shares["late"]["limit"] = limit
        self.disk = Disk(self.folder / "tier", chunks=CHUNKS, **shares)
        self.declared = {tenant: declare(tenant) for tenant in TENANTS}
        self.written = set()

    @rule(tenant=tenants, chunks=some_keys)
    def store(self, tenant, chunks):
        if tenant in self.declared:
            stored = self.disk.store(tenant, *chunks)
            self.written |= {(tenant, key) for key in stored}

    @rule(tenant=tenants, chunks=some_keys)
    def load(self, tenant, chunks):
        if tenant in self.declared:
            for key, loaded in self.disk.load(tenant, *chunks).items():
                assert loaded == content(key)
                assert (tenant, key) in self.written, "nobody loads what it has not stored"

    @rule(tenant=tenants)
    def purge(self, tenant):
        if tenant in self.declared:
            self.purges += 1
            self.declared[tenant] = declare(tenant, purge=f"p{self.purges}")
            self.disk.declare(*self.declared.values(), opening=False)
            self.written = {(owner, key) for owner, key in self.written if owner != tenant}

    @rule(tenant=tenants)
    def come_or_go(self, tenant):
        if tenant in self.declared:
            del self.declared[tenant]
            zone = self.disk.zone(tenant)
            while zone is not None and zone.requests:
                self.disk.tier.tier.request_finished(zone, 0.0)
            self.written = {(owner, key) for owner, key in self.written if owner != tenant}
        else:
            self.declared[tenant] = declare(tenant)
        self.disk.declare(*self.declared.values(), opening=False)

    @rule(call=st.sampled_from(CALLS), number=st.sampled_from(ERRORS))
    def fail(self, call, number):
        self.disk.files.errors[call] = OSError(number, "injected")

    @rule()
    def recover(self):
        self.disk.files.errors.clear()
        for breaker in (self.disk.tier.write_breaker, self.disk.tier.read_breaker, self.disk.tier.removal_breaker):
            breaker.succeeded()

    @rule(chosen=st.integers(0), harm=st.sampled_from(["cut", "changed", "removed", "swapped"]))
    def harm(self, chosen, harm):
        paths = sorted(self.files())
        if not paths:
            return
        # What is about to be removed may go meanwhile.
        with suppress(FileNotFoundError):
            harmed(harm, paths[chosen % len(paths)], paths[(chosen + 1) % len(paths)])

    @rule()
    def restart(self):
        if self.declared:
            self.disk.restart(*self.declared.values())

    @invariant()
    def promises_are_kept(self):
        if self.disk is None:
            return
        self.disk.poll()
        figures = self.disk.tier.figures()
        assert len(self.files()) <= CHUNKS
        assert figures.held_bytes <= CHUNKS * FILE
        assert sum(zone.held_bytes for zone in figures.zones.values()) <= figures.held_bytes
        for zone in figures.zones.values():
            assert zone.held_bytes <= zone.limit_bytes

    def files(self):
        return files_in(self.folder / "tier" / "objects")

    def teardown(self):
        if self.disk is not None:
            self.recover()
            self.disk.declare(declare("gold"), opening=True)
            for tenant in TENANTS:
                zone = self.disk.tier.tier.ledger.zones.get(tenant)
                while zone is not None and tenant != "gold" and zone.requests:
                    self.disk.tier.tier.request_finished(zone, 0.0)
            self.disk.rest()
            held = self.disk.tier.tier.ledger.held_blocks
            assert len(self.files()) <= held, "what is nobody's has gone"
            assert len(self.disk.tier._catalog.slots.free) == CHUNKS - held, "no slot was lost"
            self.disk.stop()
        shutil.rmtree(self.folder)


DiskLives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_random_lives_of_a_disk = DiskLives.TestCase
