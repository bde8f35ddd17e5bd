"""Random lives of a disk tier with real files and faults: what is loaded is right, and no promise is broken."""

import shutil
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.disk.disks import FILE, Disk, content, keys
from tests.disk.lives import TENANTS, Lives, tenants
from tests.reservations import Reservations
from tests.zones.core import declare

CHUNKS = 6
KEYS = keys(5)

some_keys = st.lists(st.sampled_from(KEYS), unique=True, min_size=1)


class DiskLives(Lives):
    """Waits for each job; its threads determine what happens meanwhile.

    Zones are quiet as soon as their requests have ended.
    """

    terms: ClassVar = {"after": 0.0}

    @initialize(reserved=st.lists(st.integers(0, 2), min_size=3, max_size=3), limit=st.integers(2, CHUNKS))
    def begin(self, reserved, limit):
        shares = {tenant: {"reserved": blocks} for tenant, blocks in zip(TENANTS, reserved, strict=True)}
        shares["late"]["limit"] = limit
        self.disk = Disk(self.folder / "tier", chunks=CHUNKS, **shares)
        self.written = set()

    def forgotten(self, tenant):
        self.written = {(owner, key) for owner, key in self.written if owner != tenant}

    @rule(tenant=tenants, chunks=some_keys)
    def store(self, tenant, chunks):
        if tenant in self.declared:
            kept = Reservations(self.disk.tier.tier.ledger.zones.values())
            stored = self.disk.store(tenant, *chunks)
            self.written |= {(tenant, key) for key in stored}
            self.end_requests(tenant)
            self.disk.poll()
            kept.check_kept()

    @rule(tenant=tenants, chunks=some_keys)
    def load(self, tenant, chunks):
        if tenant in self.declared:
            for key, loaded in self.disk.load(tenant, *chunks).items():
                assert loaded == content(key)
                assert (tenant, key) in self.written, "a tenant loads only what it has stored"

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

    def teardown(self):
        if self.disk is not None:
            self.recover()
            self.disk.declare(declare("gold"), opening=True)
            self.end_requests("acme", "late")
            self.disk.rest()
            held = self.disk.tier.tier.ledger.held_blocks
            assert len(self.files()) <= held, "files that no zone owns are gone"
            assert len(self.disk.tier._catalog.slots.free) == CHUNKS - held, "no slot was lost"
            self.disk.stop()
        shutil.rmtree(self.folder)


DiskLives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_random_lives_of_a_disk = DiskLives.TestCase
