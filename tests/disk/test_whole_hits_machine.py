"""Random lives of a disk of hits with real files and faults: what is loaded is right, and nothing outlives its use."""

import shutil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.disk.disks import CHUNK, NUMBERS, Disk, content
from tests.disk.lives import Lives, tenants
from tests.disk.test_relinking import blocks, keys
from tests.disk.test_whole_hits import SHAPE, all_of_use, begin, hit_of
from tests.zones.core import declare

CHUNKS = 14

prompts = st.text("ab", min_size=1, max_size=5)


class HitLives(Lives):
    def __init__(self):
        super().__init__()
        self.held = {}
        self.loads = {}
        self.stores = set()

    @initialize(reserved=st.integers(0, 8), limit=st.integers(1, CHUNKS), chunks=st.sampled_from([1, CHUNKS]))
    def begin(self, reserved, limit, chunks):
        self.chunks = chunks
        shares = {"gold": {"reserved": min(reserved, chunks)}, "late": {"limit": min(limit, chunks)}, "acme": {}}
        self.disk = Disk(self.folder / "tier", chunks=chunks, shape=SHAPE, **shares)

    @rule(tenant=tenants, tokens=prompts)
    def store(self, tenant, tokens):
        if tenant in self.declared:
            self.stores.add(begin(self.disk, tenant, tokens))

    @rule(tenant=tenants, tokens=prompts)
    def load(self, tenant, tokens):
        """Loads as much of a prompt as makes a hit."""
        if tenant not in self.declared:
            return
        zone, disk = self.disk.zone(tenant), self.disk.tier
        prompt = [keys(blocks(*tokens), group) for group in range(2)]
        hit = hit_of(tokens[: SHAPE.longest(prompt, 0, len(tokens), lambda key: disk.holds(zone, key))])
        if hit and disk.may_load(zone, len(hit)):
            memory = {key: bytearray(CHUNK) for key in hit}
            number = next(NUMBERS)
            disk.load(number, zone, [(key, memoryview(view)) for key, view in memory.items()])
            self.loads[number] = memory

    @rule(tenant=tenants, tokens=prompts)
    def use(self, tenant, tokens):
        if tenant in self.declared:
            self.disk.tier.use(self.disk.zone(tenant), reversed(hit_of(tokens)))

    @rule(tenant=tenants, tokens=prompts, chosen=st.integers(0, 9))
    def lose(self, tenant, tokens, chosen):
        if tenant in self.declared:
            hit = hit_of(tokens)
            self.disk.tier.lose(self.disk.zone(tenant), [hit[chosen % len(hit)]])

    @rule(tenant=tenants, limit=st.integers(0, CHUNKS), reserved=st.integers(0, 5))
    def share_changes(self, tenant, limit, reserved):
        if self.chunks == CHUNKS:
            share = {"limit": limit} if limit else {}
            self.disk.config(**{tenant: share | {"reserved": min(reserved, limit) if limit else reserved}})
            self.disk.declare(*self.declared.values(), opening=False)

    @rule()
    def renew(self):
        self.disk.tier.renew()

    @rule(call=st.sampled_from(["write", "read", "remove"]))
    def hold(self, call):
        if call not in self.disk.files.held:
            self.held[call] = self.disk.files.hold(call)

    @rule()
    def give_up(self):
        self.disk.tier.give_up_jobs()

    @rule()
    def release(self):
        for event in self.held.values():
            event.set()
        self.held.clear()
        self.disk.files.held.clear()

    @rule()
    def rest(self):
        self.release()
        self.recover()
        self.disk.rest()

    @rule(renamed=st.lists(st.integers(0), max_size=3))
    def restart(self, renamed):
        """Restarts after another program has renamed files, so that they claim to follow other blocks."""
        if self.declared:
            self.release()
            if renamed:
                self.rest()
            paths = sorted(self.files()) if renamed else []
            for chosen in renamed if paths else []:
                path, other = paths[chosen % len(paths)], paths[(chosen + 1) % len(paths)]
                if path.exists():
                    name = path.name.split("-")[:2]
                    path.rename(path.with_name("-".join([*name, other.name.split("-")[0][:32]])))
            self.disk.restart(*self.declared.values())
            self.loads.clear()
            self.stores.clear()

    @invariant()
    def promises_are_kept(self):
        if self.disk is None:
            return
        self.disk.poll()
        self.stores -= self.disk.ended.keys()
        for number in self.loads.keys() & self.disk.ended.keys():
            memory = self.loads.pop(number)
            moved = self.disk.ended[number].moved
            assert all(memory[key] == (content(key) if key in moved else bytearray(CHUNK)) for key in memory)
        self.disk.ended.clear()
        assert all_of_use(self.disk), "it has outlived its use"
        figures = self.disk.tier.figures()
        for zone in figures.zones.values():
            assert zone.held_bytes <= zone.limit_bytes or zone.in_transfer

    def teardown(self):
        if self.disk is not None:
            self.rest()
            self.end_requests("acme", "late")
            self.disk.declare(declare("gold"), opening=True)
            self.disk.rest()
            self.promises_are_kept()
            assert not self.loads
            assert not self.stores
            tier = self.disk.tier
            assert not tier._jobs._going_on
            assert not tier.tier.storing
            assert not tier.tier.loading
            held = tier.tier.ledger.held_blocks
            assert len(self.files()) <= held, "files that no zone owns are gone"
            assert len(tier._catalog.slots.free) == self.chunks - held, "no slot was lost"
            assert set(tier.tier.links) == set(tier._catalog._space_of)
            self.disk.stop()
        shutil.rmtree(self.folder)


HitLives.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_random_lives_of_hits = HitLives.TestCase
